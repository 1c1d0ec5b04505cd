#!/usr/bin/env bash
# Measures covers on a GPU beside the blur, in turn: files of 1080p, then 25 cameras. About ten minutes.
#
#     tools/benchmarks/covers_gpu.sh ../shared RESULTS
#
# The folder RESULTS gets files.json, faces.json and cameras-N.json, cameras-faces-N.json. PYTHON names the interpreter.
set -euo pipefail

shared=${1:?the folder with clips and people/clips} results=${2:?a folder for the results}
python=${PYTHON:-python}
work=$(mktemp -d /dev/shm/covers.XXXXXX)
trap 'rm -rf "$work"' EXIT
mkdir -p "$results"
"$python" tools/benchmarks/covers_gpu.py "$shared/clips/person-walking.mp4" --work "$work" \
    --only blur,faces,faces+people,people -o "$results/files.json"
"$python" tools/benchmarks/covers_gpu.py "$shared/people/clips/his-girl-friday.mp4" --work "$work" \
    --only blur,faces,heads --frames 1200 --repeats 1 -o "$results/faces.json"
for number in 1 2; do
    for covers in "" faces; do
        "$python" tools/lab/experiments/streams.py live --streams 25 --size 1920x1080 --fps 30 --seconds 14 --settle 6 \
            --processes 8 --encode jpeg ${covers:+--anonymize "$covers"} -o "$results/cameras-${covers:+$covers-}$number.json"
    done
done
