# SPDX-License-Identifier: Apache-2.0
import pytest

from memoir import Error
from memoir.record import native


@pytest.fixture(scope="session", autouse=True)
def library():
    try:
        return native.library()
    except Error as error:
        pytest.skip(str(error))
