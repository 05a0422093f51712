// SPDX-License-Identifier: Apache-2.0
// What bench/train/train.py records of SQLite: runs a file of SQL, one statement a line, in a database in
// memory. Some statements are prepared once and kept, as programs do.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sqlite3.h"

static void fail(sqlite3* database, const char* text) {
  fprintf(stderr, "%s: %s\n", text, sqlite3_errmsg(database));
  exit(1);
}

int main(int count, char** words) {
  enum { kKept = 24, kLine = 1 << 16 };
  static char line[kLine];
  static sqlite3_stmt* kept[kKept];
  if (count != 2) return 2;
  FILE* file = fopen(words[1], "r");
  sqlite3* database;
  if (!file || sqlite3_open(":memory:", &database) != SQLITE_OK) return 1;
  long sum = 0;
  while (fgets(line, kLine, file)) {
    if (line[0] == '@') {  // @7 statement: into place 7; @7 alone: run what is there
      int place = atoi(line + 1) % kKept;
      char* text = strchr(line, ' ');
      if (text) {
        sqlite3_finalize(kept[place]);
        if (sqlite3_prepare_v2(database, text, -1, &kept[place], 0) != SQLITE_OK) fail(database, line);
      } else {
        while (sqlite3_step(kept[place]) == SQLITE_ROW) sum += sqlite3_column_int(kept[place], 0);
        sqlite3_reset(kept[place]);
      }
    } else if (sqlite3_exec(database, line, 0, 0, 0) != SQLITE_OK) {
      fail(database, line);
    }
  }
  for (int i = 0; i < kKept; ++i) sqlite3_finalize(kept[i]);
  printf("%ld\n", sum);
  fclose(file);
  return sqlite3_close(database) == SQLITE_OK ? 0 : 1;
}
