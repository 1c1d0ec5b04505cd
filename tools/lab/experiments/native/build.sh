#!/usr/bin/env bash
# Builds the library into FOLDER; with "test" also the stand-in driver, and the library under AddressSanitizer.
set -eu
here=$(cd "$(dirname "$0")" && pwd); folder=${1:?FOLDER}
flags="-std=c++17 -Wall -Wextra -fPIC -fvisibility-inlines-hidden -shared"
g++ $flags -O2 -o "$folder/libnative_decoder.so" "$here/native_decoder.cpp" -ldl
[ "${2:-}" = test ] || exit 0
gcc -O1 -g -fPIC -shared -Wall -Wextra -o "$folder/stand_in.so" "$here/stand_in.c"
g++ $flags -O1 -g -fsanitize=address,undefined -fno-sanitize=vptr -o "$folder/checked.so" "$here/native_decoder.cpp" -ldl
