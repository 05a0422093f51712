// SPDX-License-Identifier: Apache-2.0
// What bench/train/train.py has clang compile: templates, classes, lambdas; no headers. SEED makes another
// program of it.
#ifndef SEED
#define SEED 1
#endif
namespace shapes {
template <typename T, int N>
struct Array {
  T values[N];
  constexpr T& operator[](int i) { return values[i]; }
  constexpr const T& operator[](int i) const { return values[i]; }
  template <typename F>
  constexpr auto map(F f) const {
    Array<decltype(f(values[0])), N> result{};
    for (int i = 0; i < N; ++i) result[i] = f(values[i]);
    return result;
  }
  constexpr T sum() const {
    T total{};
    for (const T& each : values) total += each;
    return total;
  }
};
template <int N>
struct Fibonacci {
  static constexpr long value = Fibonacci<N - 1>::value + Fibonacci<N - 2>::value;
};
template <>
struct Fibonacci<0> {
  static constexpr long value = SEED;
};
template <>
struct Fibonacci<1> {
  static constexpr long value = 1;
};
template <typename... T>
struct Tuple {};
template <typename H, typename... T>
struct Tuple<H, T...> : Tuple<T...> {
  H head;
  Tuple(H h, T... t) : Tuple<T...>(t...), head(h) {}
  template <typename F>
  void each(F f) {
    f(head);
    if constexpr (sizeof...(T) > 0) static_cast<Tuple<T...>&>(*this).each(f);
  }
};
class Shape {
 public:
  virtual ~Shape() = default;
  virtual double area() const = 0;
  virtual const char* name() const { return "shape"; }
};
class Circle final : public Shape {
 public:
  explicit Circle(double radius) : radius_(radius) {}
  double area() const override { return 3.14159 * radius_ * radius_; }

 private:
  double radius_;
};
class Box final : public Shape {
 public:
  Box(double width, double height) : width_(width), height_(height) {}
  double area() const override { return width_ * height_; }
  const char* name() const override { return "box"; }

 private:
  double width_, height_;
};
template <typename T>
class List {
  struct Entry {
    T value;
    Entry* next;
  };
  Entry* first_ = nullptr;
  int size_ = 0;

 public:
  ~List() {
    while (first_) {
      Entry* next = first_->next;
      delete first_;
      first_ = next;
    }
  }
  void push(T value) {
    first_ = new Entry{static_cast<T&&>(value), first_};
    ++size_;
  }
  template <typename F>
  auto fold(F f, T start) const {
    for (Entry* at = first_; at; at = at->next) start = f(start, at->value);
    return start;
  }
  int size() const { return size_; }
};
enum class Kind { kFirst, kSecond, kThird = SEED + 5 };
inline int of(Kind kind) {
  switch (kind) {
    case Kind::kFirst:
      return 1;
    case Kind::kSecond:
      return 2;
    case Kind::kThird:
      return SEED;
  }
  return 0;
}
}  // namespace shapes
#define WORK(n)                                                                                       \
  long work##n(int a, double b) {                                                                     \
    shapes::Array<int, n + 3> array{};                                                                \
    for (int i = 0; i < n + 3; ++i) array[i] = a * i + SEED;                                          \
    auto squares = array.map([b](int x) { return x * x + b; });                                       \
    shapes::List<long> list;                                                                          \
    for (int i = 0; i < a; ++i) list.push(i* shapes::Fibonacci<20 + n>::value);                       \
    shapes::Tuple<int, double, char> tuple(a, b, 'c');                                                \
    double seen = 0;                                                                                  \
    tuple.each([&](auto x) { seen += x; });                                                           \
    shapes::Shape* shape =                                                                            \
        a % 2 ? static_cast<shapes::Shape*>(new shapes::Circle(b)) : new shapes::Box(b, a);           \
    const double area = shape->area() + shape->name()[0];                                             \
    delete shape;                                                                                     \
    return list.fold([](long x, long y) { return x ^ (y + n); }, long(squares.sum() + seen + area)) + \
           shapes::of(static_cast<shapes::Kind>(a));                                                  \
  }
WORK(1);
WORK(2);
WORK(3);
WORK(4);
WORK(5);
WORK(6);
WORK(7);
WORK(8);
#if SEED > 1
template <typename T>
concept Small = sizeof(T) < 9;
template <Small T>
T smallest(T a, T b) {
  return a < b ? a : b;
}
struct Deep : virtual shapes::Shape {
  double area() const override { return smallest(1.5, 2.5); }
  operator bool() const { return area() > 1; }
  bool operator==(const Deep& other) const { return area() == other.area(); }
};
WORK(9);
WORK(10);
WORK(11);
WORK(12);
bool deep() { return Deep{} == Deep{}; }
#endif
int main(int count, char**) { return int(work1(count, 1.5) + work2(count, 2.5) + work8(count, 0.5)); }
