# SPDX-License-Identifier: Apache-2.0
"""Views: pure functions from data to a terminal table, a PNG or SVG, or one HTML file without network."""
