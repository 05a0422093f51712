/* SPDX-License-Identifier: Apache-2.0
 *
 * A library that conformance.c opens. Bound deeply, it finds the C library's malloc before any other.
 */
#include <stdlib.h>
#include <string.h>

void* opened_make(size_t size) { return malloc(size); }
void* opened_grow(void* block, size_t size) { return realloc(block, size); }
char* opened_copy(const char* text) { return strdup(text); }
void opened_drop(void* block) { free(block); }
