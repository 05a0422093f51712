// SPDX-License-Identifier: Apache-2.0
//
// Stands in for the CUDA compiler's header: plain C++ needs nothing of it.
#pragma once
