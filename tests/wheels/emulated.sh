#!/bin/sh
# usage: tests/wheels/emulated.sh [COMPILER [EMULATOR]]   (a compiler alone: for this processor)
# Makes the recorded draws on another processor than this one, an emulated 64-bit Arm by default: the core and draws.cpp
# are compiled for it, without Python. What it draws must be what tests/wheels/draws.txt says.
set -eu
cd "$(dirname "$0")/../.."
compiler=${1-aarch64-linux-gnu-g++}
emulator=${2-$([ $# -gt 0 ] || echo qemu-aarch64-static)}

for tool in ${compiler%% *} $emulator; do
  command -v "$tool" >/dev/null 2>&1 || {
    echo "skipped: no $tool here; install it: 'apt install g++-aarch64-linux-gnu qemu-user-static' (Debian, Ubuntu)"
    exit 0
  }
done

made=build/emulated
mkdir -p "$made"
echo "==> compiling the core with $compiler"
# As CMakeLists.txt has it: no fused multiply-add.
$compiler -std=c++17 -O3 -DNDEBUG -ffp-contract=off -fno-trapping-math -Wno-psabi -static -pthread -Icpp \
  tests/wheels/draws.cpp cpp/support/*.cpp cpp/storage/*.cpp cpp/indexes/*.cpp cpp/samplers/*.cpp cpp/replay/*.cpp \
  -o "$made/draws"
echo "==> drawing${emulator:+ in $emulator}"
$emulator "$made/draws" <tests/wheels/draws.txt >"$made/draws.txt"
diff tests/wheels/draws.txt "$made/draws.txt"
echo "$(grep -c '^draws' "$made/draws.txt") cases, all drawn as recorded"
