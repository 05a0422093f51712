# SPDX-License-Identifier: Apache-2.0
"""Plugs for other frameworks. Each is imported as memoir.<framework>: the package looks here for such names."""
