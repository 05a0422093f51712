# SPDX-License-Identifier: Apache-2.0
"""Allocators against each other, honestly; `statistics` serves every measurement of this project."""
