#!/usr/bin/env bash
# Profiles a run with Nsight Systems and says what the profile shows:
#
#     tools/benchmarks/profile.sh baseline|optimized INPUT [options of python -m segmentation]
#
# What is written goes to the folder PROFILE_DIR (profiles): MODE.nsys-rep for the GUI, MODE.sqlite, MODE.json with the
# numbers, MODE.mp4. NSYS and PYTHON name the programs, where others than those found are wanted.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mode=${1:-}
if [[ $mode != baseline && $mode != optimized ]] || (($# < 2)); then
    echo "usage: tools/benchmarks/profile.sh baseline|optimized INPUT [options of python -m segmentation]" >&2
    exit 2
fi
shift

# nsys on PATH, else the newest where NVIDIA's packages put it; Nsight Compute brings one along.
find_nsys() {
    local tool place newest=
    [[ -n ${NSYS:-} ]] && echo "$NSYS" && return
    command -v nsys && return
    shopt -s nullglob
    for tool in /opt/nvidia /usr/local/cuda* /usr/local /usr/lib; do
        for place in "$tool"/nsight-compute*/{,*/}host/target-linux-*/nsys \
            "$tool"/nsight-systems*/{,*/}{target-linux-*,bin}/nsys "$tool"/bin/nsys; do
            [[ ! -x $place ]] || newest=$place
        done
    done
    [[ -n $newest ]] && echo "$newest"
}

nsys=$(find_nsys) || {
    echo "profile.sh: nsys is not here; install the package nsight-systems-cli (or cuda-nsight-systems) from" >&2
    echo "https://developer.nvidia.com/nsight-systems, or set NSYS to its path" >&2
    exit 3
}
python=${PYTHON:-$(command -v python || command -v python3)}
folder=${PROFILE_DIR:-profiles}
mkdir -p "$folder"
report=$folder/$mode
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" # so that a checkout works without being installed

"$nsys" profile --trace cuda,nvtx,osrt --output "$report" --force-overwrite=true \
    "$python" -m segmentation "--$mode" -o "$report.mp4" -y "$@"
"$nsys" export --type sqlite --force-overwrite=true --output "$report.sqlite" "$report.nsys-rep"
for table in nvtx_sum cuda_gpu_kern_sum cuda_gpu_mem_time_sum cuda_gpu_mem_size_sum; do
    "$nsys" stats --report "$table" "$report.sqlite" || echo "profile.sh: this nsys has no $table"
done
"$python" "$root/tools/benchmarks/profile_verdict.py" "$report.sqlite" --json >"$report.json"
"$python" "$root/tools/benchmarks/profile_verdict.py" "$report.sqlite"
