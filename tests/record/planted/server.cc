// Written for this project: a request server with a leak in the session cache, a peak in the report, churn in
// the parser, all of it through the standard library.
#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

struct Session {
  std::string user;
  std::vector<char> state;
};

struct SessionCache {
  std::unordered_map<int, std::shared_ptr<Session>> sessions;
  std::mutex mutex;
  void add(int id) {  // never evicts: the leak
    auto session = std::make_shared<Session>();
    session->user = "user-" + std::to_string(id) + std::string(60, 'u');
    session->state.resize(3000);
    std::lock_guard<std::mutex> lock(mutex);
    sessions[id] = session;
  }
}* cache = new SessionCache;

struct Parser {
  std::vector<std::string> tokens;
  void parse(const std::string& query) {  // the churn
    std::string token;
    for (char c : query) {
      if (c == ' ') {
        tokens.push_back(token + "-token-padding-xxxxxxxx");
        token.clear();
      } else {
        token += c;
      }
    }
  }
};

struct Report {
  std::vector<std::vector<double>> rows;
  void build(int n) {  // the peak
    for (int i = 0; i < n; ++i) rows.emplace_back(2000, 1.0);
  }
};

void handle(int id) {
  Parser parser;
  parser.parse("select a from b where c = d and e = f ");
  if (id % 10 == 0) cache->add(id);
}

int main() {
  std::vector<std::thread> workers;
  for (int k = 0; k < 2; ++k) {
    workers.emplace_back([k] {
      for (int i = 0; i < 4000; ++i) handle(k * 1000000 + i);
    });
  }
  for (auto& worker : workers) worker.join();
  Report nightly;
  nightly.build(1000);
  std::puts("bye");
}
