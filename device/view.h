// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/error.h"

namespace zero {

class Device;

/// A typed, non-owning window on memory: {data, count, dtype, device}. Counts are elements, never
/// bytes. A View is a value; copying it copies no memory. Valid as long as the Buffer that it was
/// cut from.
class View {
 public:
  View() = default;
  View(void* data, std::int64_t count, DType dtype, Device* device)
      : data_(data), count_(count), dtype_(dtype), device_(device) {}

  /// A view of host memory that the caller owns (vectors, file maps). device() is null: host
  /// memory.
  template <typename T>
  static View of(std::span<T> elements) {
    return {const_cast<std::remove_const_t<T>*>(elements.data()),
            static_cast<std::int64_t>(elements.size()), dtype_of<std::remove_const_t<T>>, nullptr};
  }

  void* data() const { return data_; }
  std::int64_t count() const { return count_; }
  std::int64_t bytes() const { return count_ * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  Device* device() const { return device_; }
  bool empty() const { return count_ == 0; }

  /// Elements [begin, begin + count) of this view. Throws zero::Error if the range is not inside.
  View slice(std::int64_t begin, std::int64_t count) const {
    ZERO_CHECK(begin >= 0 && count >= 0 && begin <= count_ - count,
               "slice of {} elements at {} is outside a view of {} elements", count, begin, count_);
    return {static_cast<std::byte*>(data_) + begin * size_of(dtype_), count, dtype_, device_};
  }

  /// The same memory as `count` elements of another type, of no more bytes than this view.
  View reinterpret(DType dtype, std::int64_t count) const {
    ZERO_CHECK(count >= 0 && count <= bytes() / size_of(dtype),
               "cannot see {} x {} in a view of {} bytes", count, name_of(dtype), bytes());
    return {data_, count, dtype, device_};
  }

  /// The elements as T; throws zero::Error if T is not this view's dtype.
  template <typename T>
  std::span<T> as() const {
    ZERO_CHECK(dtype_of<std::remove_const_t<T>> == dtype_, "view holds {}, read as {}",
               name_of(dtype_), name_of(dtype_of<std::remove_const_t<T>>));
    return {static_cast<T*>(data_), static_cast<std::size_t>(count_)};
  }

 private:
  void* data_ = nullptr;
  std::int64_t count_ = 0;
  DType dtype_ = DType::fp32;
  Device* device_ = nullptr;
};

}  // namespace zero
