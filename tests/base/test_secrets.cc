// SPDX-License-Identifier: Apache-2.0
#include "memoir/base/secrets.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "doctest/doctest.h"

namespace memoir {

namespace {

/// Words of a line as arguments; `|` stands between two, as a zero does.
std::string masked(std::string line) {
  std::replace(line.begin(), line.end(), '|', '\0');
  const std::size_t before = line.size();
  line.resize(mask_secrets(line.data(), line.size()));
  CHECK(line.size() <= before);
  std::replace(line.begin(), line.end(), '\0', '|');
  return line;
}

}  // namespace

TEST_CASE("what looks like a secret is masked, wherever its name stands") {
  CHECK(masked("p|--password=x1234") == "p|--password=***");
  CHECK(masked("p|--password=a b c|-v") == "p|--password=***|-v");
  CHECK(masked("p|--db-password|hunter22|--port|80") == "p|--db-password|***|--port|80");
  CHECK(masked("p|--api_key|hunter22") == "p|--api_key|***");
  CHECK(masked("p|-token=hunter22") == "p|-token=***");
  CHECK(masked("env|PGPASSWORD=hunter22|psql") == "env|PGPASSWORD=***|psql");
  CHECK(masked("env|AWS_SECRET_ACCESS_KEY=hunter22") == "env|AWS_SECRET_ACCESS_KEY=***");
  CHECK(masked("sh|-c|: --password=hunter22; ls") == "sh|-c|: --password=***; ls");
  CHECK(masked("sh|-c|run --secret 'two words' --fast") == "sh|-c|run --secret '***' --fast");
  CHECK(masked("sh|-c|TOKEN=\"two words\" ./x") == "sh|-c|TOKEN=\"***\" ./x");
  CHECK(masked("curl|-u|me:hunter22|http://x") == "curl|-u|me:***|http://x");
  CHECK(masked("p|postgres://me:hunter22@host:5432/db?x=y") == "p|postgres://me:***@host:5432/db?x=y");
  CHECK(masked("p|--url=postgres://me:hunter22@host/db") == "p|--url=postgres://me:***@host/db");
  CHECK(masked("curl|-H|Authorization: Bearer abcdefgh") == "curl|-H|Authorization: ***");
  CHECK(masked("curl|-H|X-Api-Key: abcdefgh") == "curl|-H|X-Api-Key: ***");
  CHECK(masked("p|ghp_0123456789abcdefghij") == "p|ghp_***");
  CHECK(masked("p|--login=hf_0123456789abcdefghij") == "p|--login=hf_***");
  CHECK(masked("/usr/bin/mysql|-pHunter22|-h|x") == "/usr/bin/mysql|-p***|-h|x");
  CHECK(masked("p|--PASSWORD=x") == "p|--PASSWORD=*");
  CHECK(masked("curl|-d|{\"password\":\"hunter22\"}") == "curl|-d|{\"password\":\"***\"}");
  CHECK(masked("curl|-d|{\"a\":1, \"token\" : \"two words\"}") == "curl|-d|{\"a\":1, \"token\" : \"***\"}");
  CHECK(masked("redis|--requirepass|hunter22") == "redis|--requirepass|***");
  CHECK(masked("p|--bearer|hunter22|--jwt|hunter22") == "p|--bearer|***|--jwt|***");
  CHECK(masked("p|--password:hunter22|/password:hunter22") == "p|--password:***|/password:***");
  CHECK(masked("env|NOMAD_TOKEN=hunter22|--node-password=hunter22") ==
        "env|NOMAD_TOKEN=***|--node-password=***");
}

TEST_CASE("what is only near a secret stays") {
  for (const char* const line :
       {"server|--port|8000", "p|--tokenizer|gpt2|--max-tokens=100", "p|--token-file=x|--no-password|x",
        "p|--password|--verbose", "p|-p8080", "p|-v|/etc/secret:/mnt", "p|\"token\" x",
        "python|train.py|--passes=3|--key=name", "p|http://host:80/a@b", "make|-j8|CFLAGS=-O2",
        "p|monkey=1|sk-short", "p|a:b|-u|me", "", "p", "p|", "|", "p|--password"})
    CHECK(masked(line) == line);
}

TEST_CASE("no text is read or written beyond its end") {
  const std::string alphabet = "-=:/@'\" |pskmbe";
  std::uint64_t state = 7;
  for (int i = 0; i < 20000; ++i) {
    std::string text = "--password";
    state = state * 6364136223846793005u + 1442695040888963407u;
    text.resize(state >> 61);
    for (std::uint64_t length = state >> 58 & 31; length > 0; --length) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      text += alphabet[(state >> 40) % alphabet.size()];
    }
    std::replace(text.begin(), text.end(), '|', '\0');
    std::vector<char> exact(text.begin(), text.end());  // the sanitizers see its end
    CHECK(mask_secrets(exact.data(), exact.size()) <= text.size());
  }
}

}  // namespace memoir
