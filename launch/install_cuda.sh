#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# Installs the build dependencies of the GPU backend into one folder, from NVIDIA's packages on PyPI: nvcc,
# the CUDA runtime, cuBLASLt, cuDNN with its frontend's headers, NCCL. Needs only pip; CMake finds the folder
# by itself. If the machine has CUDA installed, CMake takes from the folder only the missing parts.
#
#   launch/install_cuda.sh [FOLDER]      by default ~/.cache/zero/cuda-13.0 (1.6 GiB)
#
# Packages already in the folder are not fetched again.
set -euo pipefail
case ${1-} in -h | --help) sed -n '5,11s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
cd "$(dirname "$0")/.."

folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/zero/cuda-13.0}
readonly kPackages=(
  'nvidia-cuda-nvcc==13.0.*' 'nvidia-cuda-crt==13.0.*' 'nvidia-nvvm==13.0.*'
  'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-nvrtc==13.0.*' 'nvidia-cuda-cccl==13.0.*' 'nvidia-cuda-cuobjdump>=13.2'
  'nvidia-cublas==13.0.*' 'nvidia-cudnn-cu13==9.13.*' 'nvidia-cudnn-frontend==1.32.*' 'nvidia-nccl-cu13==2.28.*'
)
stamp=$folder/.packages
if [ "$(cat "$stamp" 2>/dev/null)" = "${kPackages[*]}" ]; then exit 0; fi

launch/install_packages.sh cuda
echo "install_cuda: fetching CUDA 13.0, cuDNN 9 and NCCL 2.28 into $folder"
mkdir -p "$folder"
work=$(mktemp -d "$folder/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "${kPackages[@]}"
for wheel in "$work"/*.whl; do
  python3 -m zipfile -e "$wheel" "$work/tree"
  rm "$wheel"
done

# Each package has its own folders; a toolkit has one include/ and one lib/.
for part in "$work"/tree/nvidia/cu13 "$work"/tree/nvidia/cudnn "$work"/tree/nvidia/nccl; do
  cp -rlf "$part"/. "$folder"/
done
cp -rlf "$work"/tree/include/. "$folder"/include/
chmod +x "$folder"/bin/* "$folder"/nvvm/bin/*
for library in "$folder"/lib/lib*.so.*; do  # the names that a linker looks for
  ln -sfn "$(basename "$library")" "${library%%.so.*}.so"
done
ln -sfn lib "$folder/lib64"
echo "${kPackages[*]}" >"$stamp"
