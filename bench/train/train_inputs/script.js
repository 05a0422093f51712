// SPDX-License-Identifier: Apache-2.0
// What bench/train/train.py has QuickJS do: a table of records that lives on, and work that comes and goes. SEED and ROUNDS are
// put in front.
let state = SEED;
function random(below) {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    return (state >>> 8) % below;
}
class Record {
    constructor(id) {
        this.id = id;
        this.name = "record " + id;
        this.tags = [random(50), random(50), random(50)];
        this.at = { x: random(1000), y: random(1000) };
    }
    get far() { return Math.hypot(this.at.x, this.at.y); }
}
const table = new Map();
const index = {};
const recent = [];
function* walk(map) { for (const [key, value] of map) if (key % 3 === 0) yield value; }
function words(text) { return text.replace(/[0-9]+/g, (n) => " #" + n + " ").split(/\s+/).filter((w) => w.length > 1); }
function report(round) {
    const text = JSON.stringify([...walk(table)].slice(0, 60));
    const back = JSON.parse(text);
    const sorted = back.map((r) => ({ key: r.name.length * 7 + r.at.x, value: r })).sort((a, b) => a.key - b.key);
    recent.push(sorted.slice(0, 5));
    if (recent.length > 8) recent.shift();
    const bytes = new Uint8Array(2048 + random(4096));
    for (let i = 0; i < bytes.length; i += 7) bytes[i] = i + round;
    const sums = new Float64Array(bytes.buffer.slice(0, 1024)).length;
    return words(text.slice(0, 800)).length + sums + sorted.length;
}
let total = 0;
for (let round = 0; round < ROUNDS; ++round) {
    for (let i = 0; i < 40; ++i) {
        const id = random(3000);
        if (random(5) === 0) table.delete(id);
        else table.set(id, new Record(id));
        (index["tag" + random(400)] ??= new Set()).add(id);
    }
    total += report(round);
    Promise.resolve(round).then((n) => new Array(30).fill(n).map(String)).then((list) => { total += list.join("").length; });
    const make = new Function("a", "b", "return [a + " + random(9) + ", b.toString() + '" + round + "']");
    total += make(round, 12n ** BigInt(random(30)))[1].length;
    try { null.missing; } catch (error) { total += error.message.length; }
    const { x, ...rest } = Object.assign({ x: 1 }, index);
    total += Object.keys(rest).length + `${x}-${round}`.padStart(20).length;
}
