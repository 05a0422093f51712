// SPDX-License-Identifier: Apache-2.0
// What bench/train/train.py records of Lua: `lua seed rounds script.lua`.
#include <stdio.h>
#include <stdlib.h>

#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"

int main(int count, char** words) {
  if (count != 4) return 2;
  lua_State* state = luaL_newstate();
  luaL_openlibs(state);
  lua_pushinteger(state, atoi(words[1]));
  lua_setglobal(state, "SEED");
  lua_pushinteger(state, atoi(words[2]));
  lua_setglobal(state, "ROUNDS");
  if (luaL_loadfile(state, words[3]) || lua_pcall(state, 0, 0, 0)) {
    fprintf(stderr, "%s\n", lua_tostring(state, -1));
    return 1;
  }
  lua_close(state);
  return 0;
}
