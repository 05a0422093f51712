# SPDX-License-Identifier: Apache-2.0
"""Traces in files: which kind a file is, and traces as text."""
