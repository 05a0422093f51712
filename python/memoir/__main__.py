# SPDX-License-Identifier: Apache-2.0
from memoir.cli import main

main()
