// SPDX-License-Identifier: Apache-2.0
// What bench/train/train.py records of LevelDB: writes, deletes, batches, reads, scans and snapshots in a
// database of its own.
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <string>

#include "leveldb/cache.h"
#include "leveldb/db.h"
#include "leveldb/filter_policy.h"
#include "leveldb/options.h"
#include "leveldb/write_batch.h"

int main(int count, char** words) {
  if (count != 4) return 2;  // folder, seed, operations
  std::mt19937_64 random(std::strtoull(words[2], nullptr, 10));
  const long operations = std::strtol(words[3], nullptr, 10);
  std::unique_ptr<leveldb::Cache> cache(leveldb::NewLRUCache(2 << 20));
  std::unique_ptr<const leveldb::FilterPolicy> filter(leveldb::NewBloomFilterPolicy(10));
  leveldb::Options options;
  options.create_if_missing = true;
  options.write_buffer_size = 512 << 10;
  options.block_cache = cache.get();
  options.filter_policy = filter.get();
  options.compression = leveldb::kNoCompression;
  leveldb::DB* opened = nullptr;
  if (!leveldb::DB::Open(options, words[1], &opened).ok()) return 1;
  std::unique_ptr<leveldb::DB> database(opened);
  std::deque<const leveldb::Snapshot*> snapshots;
  std::deque<std::unique_ptr<leveldb::Iterator>> scans;
  auto key = [&] { return "key" + std::to_string(random() % 20000); };
  std::string value;
  unsigned long found = 0;
  for (long i = 0; i < operations; ++i) {
    const auto what = random() % 100;
    if (what < 45) {
      database->Put({}, key(), std::string(20 + random() % 400, 'v'));
    } else if (what < 50) {
      database->Delete({}, key());
    } else if (what < 58) {
      leveldb::WriteBatch batch;
      for (int j = 0; j < 12; ++j) batch.Put(key(), std::string(50 + random() % 900, 'b'));
      database->Write({}, &batch);
    } else if (what < 90) {
      found += database->Get({}, key(), &value).ok();
    } else if (what < 96) {
      std::unique_ptr<leveldb::Iterator> scan(database->NewIterator({}));
      scan->Seek(key());
      for (int j = 0; j < 20 && scan->Valid(); ++j, scan->Next()) found += scan->value().size();
    } else if (what < 98) {
      snapshots.push_back(database->GetSnapshot());
      if (snapshots.size() > 20) database->ReleaseSnapshot(snapshots.front()), snapshots.pop_front();
    } else {
      scans.emplace_back(database->NewIterator({}));
      scans.back()->SeekToFirst();
      if (scans.size() > 6) scans.pop_front();
      std::string property;
      found += database->GetProperty("leveldb.stats", &property);
    }
  }
  scans.clear();
  for (const auto* each : snapshots) database->ReleaseSnapshot(each);
  std::printf("%lu\n", found);
  return 0;
}
