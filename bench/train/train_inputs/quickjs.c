// SPDX-License-Identifier: Apache-2.0
// What bench/train/train.py records of QuickJS: evaluates a file, and the jobs that it leaves.
#include <stdio.h>
#include <stdlib.h>

#include "quickjs.h"

int main(int count, char** words) {
  if (count != 2) return 2;
  FILE* file = fopen(words[1], "r");
  if (!file) return 1;
  fseek(file, 0, SEEK_END);
  const long size = ftell(file);
  rewind(file);
  char* text = malloc(size + 1);
  if (fread(text, 1, size, file) != (size_t)size) return 1;
  text[size] = 0;
  JSRuntime* runtime = JS_NewRuntime();
  JSContext* context = JS_NewContext(runtime);
  JSValue value = JS_Eval(context, text, size, words[1], JS_EVAL_TYPE_GLOBAL);
  if (JS_IsException(value)) {
    JSValue error = JS_GetException(context);
    const char* said = JS_ToCString(context, error);
    fprintf(stderr, "%s\n", said ? said : "?");
    return 1;
  }
  JSContext* waiting;
  while (JS_ExecutePendingJob(runtime, &waiting) > 0) continue;
  JS_FreeValue(context, value);
  JS_FreeContext(context);
  JS_FreeRuntime(runtime);
  free(text);
  return fclose(file);
}
