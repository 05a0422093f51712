// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/file/zlib_blocks.h"

#include <dlfcn.h>

namespace memoir {

namespace {

/// As zlib.h declares them since version 1.2: unsigned long is its uLong, 0 its Z_OK.
struct Zlib {
  unsigned long (*bound)(unsigned long) = nullptr;
  int (*compress)(unsigned char*, unsigned long*, const unsigned char*, unsigned long, int) = nullptr;
  int (*decompress)(unsigned char*, unsigned long*, const unsigned char*, unsigned long) = nullptr;

  Zlib() noexcept {
    for (const char* const path : {"libz.so.1", "libz.so"}) {
      void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);  // never closed
      if (library == nullptr) continue;
      bound = reinterpret_cast<decltype(bound)>(::dlsym(library, "compressBound"));
      compress = reinterpret_cast<decltype(compress)>(::dlsym(library, "compress2"));
      decompress = reinterpret_cast<decltype(decompress)>(::dlsym(library, "uncompress"));
      if (ok()) return;
    }
  }
  bool ok() const noexcept { return bound != nullptr && compress != nullptr && decompress != nullptr; }
};

const Zlib& zlib() noexcept {
  static const Zlib found;
  return found;
}

}  // namespace

bool has_zlib() noexcept { return zlib().ok(); }

bool zlib_compress(std::span<const std::byte> from, int level, std::vector<std::byte>& to) {
  if (!has_zlib()) return false;
  unsigned long size = zlib().bound(from.size());
  to.resize(size);
  const int result = zlib().compress(reinterpret_cast<unsigned char*>(to.data()), &size,
                                     reinterpret_cast<const unsigned char*>(from.data()), from.size(), level);
  if (result != 0 || size >= from.size()) return false;
  to.resize(size);
  return true;
}

bool zlib_decompress(std::span<const std::byte> from, std::span<std::byte> to) noexcept {
  unsigned long size = to.size();
  return has_zlib() &&
         zlib().decompress(reinterpret_cast<unsigned char*>(to.data()), &size,
                           reinterpret_cast<const unsigned char*>(from.data()), from.size()) == 0 &&
         size == to.size();
}

}  // namespace memoir
