# SPDX-License-Identifier: Apache-2.0
"""What `memoir record` stands on: the library that is preloaded, recorded processes seen from outside, names for addresses."""
