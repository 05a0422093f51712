// Written for this project: buffers outside of V8's heap.
const kept = [];

function holdMessage(number) {
  kept.push(Buffer.alloc(50000, number)); // the leak
}

function snapshot(count) {
  const parts = []; // the peak
  for (let i = 0; i < count; i++) parts.push(Buffer.alloc(1 << 20, 1));
  return parts.length;
}

for (let i = 0; i < 200; i++) holdMessage(i);
console.log(snapshot(60), kept.length);
