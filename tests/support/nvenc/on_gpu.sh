#!/usr/bin/env bash
# Runs on a GPU all that the stand-in for NVENC makes possible: the tests that skip without NVENC, FFmpeg's encoders
# alone, whole runs with faults, and the rate of everything but the chip. Needs build/nvenc, which `make nvenc-standin`
# makes here or elsewhere, and what `pytest -m gpu` needs.
#
#     PYTHON=python3 tests/support/nvenc/on_gpu.sh [VIDEO for the rate]
set -uo pipefail
video=${1:+$(realpath "$1")}
cd "$(dirname "$0")/../../.."
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH=$PWD/build/nvenc${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export SEGMENTATION_ENGINES=$work/engines SEGMENTATION_REQUIRE_GPU=1 PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
status=0
"$python" -m pytest -p no:cacheprovider -q -rs tests/stages/encode/test_nvenc.py \
    --deselect tests/stages/encode/test_nvenc.py::test_a_gpu_without_nvenc_is_named || status=1
"$python" -m pytest -p no:cacheprovider -q -rs tests/stages/encode/test_nvenc_standin.py tests/pipeline/test_nvenc_runs.py || status=1
if [ -n "$video" ]; then
    NVENC_STANDIN_EMPTY=1 "$python" tools/lab/experiments/nvenc_rate.py "$video" --work "$work" || status=1
fi
exit $status
