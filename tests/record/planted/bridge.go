// Written for this project: Go that keeps memory of C's.
package main

/*
#include <stdlib.h>
#include <string.h>
static void* c_buffer(int size) { void* p = malloc(size); memset(p, 1, size); return p; }
*/
import "C"

import (
	"fmt"
	"unsafe"
)

var kept []unsafe.Pointer

//go:noinline
func openHandle(size int) { kept = append(kept, C.c_buffer(C.int(size))) }

//go:noinline
func nameOf(number int) string {
	text := C.CString(fmt.Sprintf("name %d", number))
	defer C.free(unsafe.Pointer(text))
	return C.GoString(text)
}

//go:noinline
func renderFrame(size int) {
	frame := C.c_buffer(C.int(size))
	defer C.free(frame)
}

func main() {
	for i := 0; i < 500; i++ {
		openHandle(3000)
	}
	length := 0
	for i := 0; i < 5000; i++ {
		length += len(nameOf(i))
	}
	renderFrame(30 << 20)
	fmt.Println(length, len(kept))
}
