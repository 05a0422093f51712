// SPDX-License-Identifier: Apache-2.0
// A server in small, for `bench/train/train.py --smoke`: sessions that stay, requests that come and go.
// VERSION=2 has other names and a layer more.
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#ifndef VERSION
#define VERSION 1
#endif
#define APART __attribute__((noinline))

namespace server {
struct Session {
  std::string user;
  std::vector<int> history;
  std::unique_ptr<char[]> page;
};
struct Request {
  std::vector<std::string> words;
  std::unique_ptr<char[]> body;
};
static std::map<int, Session> sessions;
static std::deque<std::string> recent;
static unsigned state = 1;
static volatile unsigned sink;

static unsigned next(unsigned below) {
  state = state * 1103515245u + 12345u;
  return (state >> 8) % below;
}
APART std::unique_ptr<char[]> read_body(int size) {
  std::unique_ptr<char[]> body(new char[size]);
  for (int i = 0; i < size; ++i) body[i] = 'a' + i % 23;
  return body;
}
APART std::vector<std::string> split_words(const char* text, int size) {
  std::vector<std::string> words;
  for (int i = 0; i + 40 < size; i += 40) words.emplace_back(text + i, 40);
  return words;
}
APART Request parse_request(int number) {
  Request request;
  const int size = 200 + number % 1000;
  request.body = read_body(size);
  request.words = split_words(request.body.get(), size);
  return request;
}
APART Session open_session(int number) {
  Session session;
  session.user = std::string(60, 'u') + std::to_string(number);
  session.history.reserve(64);
  session.page.reset(new char[900]);
  return session;
}
APART void remember_session(int number) {
  if (sessions.count(number)) sessions.erase(number);
  sessions.emplace(number, open_session(number));
}
#if VERSION == 2
APART std::string render_answer(const Request& request) {
#else
APART std::string make_answer(const Request& request) {
#endif
  std::string answer;
  for (const std::string& word : request.words) answer += word;
  return answer;
}
APART void write_log(const std::string& line) {
  recent.push_back(line.substr(0, 100));
  if (recent.size() > 500) recent.pop_front();
}
APART unsigned compress_answer(const std::string& answer) {
  std::unique_ptr<unsigned[]> table(new unsigned[512]());
  for (char each : answer) ++table[each & 255];
  return table['a'];
}
APART void serve_request(int number) {
  const Request request = parse_request(number);
#if VERSION == 2
  const std::string answer = render_answer(request);
#else
  const std::string answer = make_answer(request);
#endif
  sink = sink + compress_answer(answer);
  write_log(answer);
  if (next(12) == 0) remember_session(next(1500));
}
#if VERSION == 2
APART void run_worker(int count) {
  for (int i = 0; i < count; ++i) serve_request(i);
}
#endif
}  // namespace server

int main(int count, char** words) {
  server::state = count > 1 ? std::atoi(words[1]) : 1;
  const int requests = count > 2 ? std::atoi(words[2]) : 20000;
#if VERSION == 2
  server::run_worker(requests);
#else
  for (int i = 0; i < requests; ++i) server::serve_request(i);
#endif
  std::printf("%u %zu\n", server::sink, server::sessions.size());
  return 0;
}
