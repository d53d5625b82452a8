// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/parallel.h"

#include <omp.h>

#include <algorithm>
#include <exception>

#include "base/checked_math.h"

namespace zero::cpu {

void parallel_for(int threads, std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& body) {
  ZERO_CHECK(threads > 0 && grain > 0,
             "parallel_for needs threads and grain above 0, got {} and {}", threads, grain);
  if (count <= 0) return;
  const std::int64_t grains = div_ceil(count, grain);
  const auto wanted = static_cast<int>(std::min<std::int64_t>(threads, grains));
  if (wanted == 1) {
    body(0, count);
    return;
  }
  std::exception_ptr error;
#pragma omp parallel num_threads(wanted)
  {
    const std::int64_t team = omp_get_num_threads();  // a nested region may get fewer
    const std::int64_t member = omp_get_thread_num();
    const std::int64_t begin = grains * member / team * grain;
    const std::int64_t end = std::min(count, grains * (member + 1) / team * grain);
    try {
      if (begin < end) body(begin, end);
    } catch (...) {
#pragma omp critical(zero_parallel_for)
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace zero::cpu
