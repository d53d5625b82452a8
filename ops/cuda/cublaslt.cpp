// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/cublaslt.h"

#include <dlfcn.h>

#include <string>

#include "base/error.h"

namespace zero::cuda {
namespace {

/// The library of the release that this was compiled for: as the loader finds it, else where it was
/// when this was built.
void* open_library() {
  const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  std::string reasons;
  for (const std::string& file : {name, std::string(ZERO_CUBLASLT_FOLDER "/") + name}) {
    void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return library;
    reasons += fmt::format("{}; ", ::dlerror());
  }
  fail("cuda: cuBLASLt cannot be loaded: {}name the folder of {} in LD_LIBRARY_PATH", reasons,
       name);
}

class Loader {
 public:
  template <typename Function>
  void find(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(::dlsym(library_, name));
    ZERO_CHECK(function != nullptr, "cuda: cuBLASLt has no function {}: {}", name, ::dlerror());
  }

 private:
  void* library_ = open_library();  // stays
};

CublasLt load() {
  const Loader loader;
  CublasLt found;
  loader.find(found.create, "cublasLtCreate");
  loader.find(found.destroy, "cublasLtDestroy");
  loader.find(found.status_string, "cublasLtGetStatusString");
  loader.find(found.version, "cublasLtGetVersion");
  loader.find(found.matmul, "cublasLtMatmul");
  loader.find(found.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  loader.find(found.kernel_attribute, "cublasLtMatmulAlgoConfigGetAttribute");
  loader.find(found.create_product, "cublasLtMatmulDescCreate");
  loader.find(found.destroy_product, "cublasLtMatmulDescDestroy");
  loader.find(found.set_product, "cublasLtMatmulDescSetAttribute");
  loader.find(found.create_preference, "cublasLtMatmulPreferenceCreate");
  loader.find(found.destroy_preference, "cublasLtMatmulPreferenceDestroy");
  loader.find(found.set_preference, "cublasLtMatmulPreferenceSetAttribute");
  loader.find(found.create_layout, "cublasLtMatrixLayoutCreate");
  loader.find(found.destroy_layout, "cublasLtMatrixLayoutDestroy");
  return found;
}

}  // namespace

const CublasLt& cublaslt() {
  static const CublasLt loaded = load();
  return loaded;
}

}  // namespace zero::cuda
