// Every form of new and delete, and exceptions that pass through frames of the recorder.
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

struct alignas(256) Wide {
  char bytes[256];
};
struct Throws {
  char bytes[3000];
  Throws() { throw 7; }
};

int main() {
  char* volatile one = new char;
  char* volatile many = new char[2001];
  char* volatile quiet = new (std::nothrow) char[2002];
  Wide* volatile wide = new Wide;
  Wide* volatile wides = new (std::nothrow) Wide[3];
  int caught = 0;
  try {
    new Throws;
  } catch (int value) {
    caught += value;
  }
  volatile std::size_t much = ~std::size_t{0} >> 2;
  try {
    std::printf("%p\n", static_cast<void*>(::operator new(much)));
  } catch (const std::bad_alloc&) {
    caught += 100;
  }
  if (::operator new(much, std::nothrow) == nullptr) caught += 1000;
  std::vector<std::string> texts;
  for (int i = 0; i < 100; ++i) texts.push_back(std::string(100 + i, 'x'));
  delete one;
  delete[] many;
  ::operator delete[](quiet, std::nothrow);
  delete wide;
  delete[] wides;
  std::printf("caught %d\n", caught);
  return caught == 1107 ? 0 : 1;
}
