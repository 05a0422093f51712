# SPDX-License-Identifier: Apache-2.0
"""One measured process: under which allocator it runs and how that is proved, how it is started and accounted, who drives it,
and the machine that it runs on."""
