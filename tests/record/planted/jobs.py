# Written for this project: what Python asks malloc for.
import json

HISTORY = []


class Job:
    def remember(self, number):  # the leak
        HISTORY.append(bytearray(40_000 + number))


def encode(number):  # the churn
    return len(json.dumps({"job": number, "text": "x" * 2000}))


def export(rows):  # the peak
    table = [bytes(100_000) for _ in range(rows)]
    return sum(map(len, table))


def main():
    for number in range(200):
        Job().remember(number)
    length = sum(encode(number) for number in range(30_000))
    print(length, export(300))


main()
