// SPDX-License-Identifier: Apache-2.0
// Under a map: the object that was clicked with its whole stack, and who lives at the moment that was brushed.

const MOST_LIVING = 200;
const MOST_PRINTED = 25; // style.css hides the rest

function pinnedObject(map, i, close) {
  const { set } = map;
  const site = set.siteOf(i);
  const merged = set.merged && set.countOf(i) > 1;
  const facts = [
    [merged ? "size of all" : "size", `${bytesText(set.bytes[i])} (${countText(set.bytes[i])} bytes)`],
    [merged ? "lowest address" : "address", map.addressText(map.low[i])],
    [merged ? "first born" : "born", set.momentText(set.born[i])],
    [merged ? "last freed" : "freed", set.neverFreed(i) ? (merged ? "never, some" : "never") : set.momentText(set.died[i])],
  ];
  if (merged) facts.push(...sameSite(set, site));
  else facts.push(["lives", set.lifetimeText(i)], ...belongings(set, i), ...sameSite(set, site));
  const list = element("dl", { class: "pinned-facts" });
  for (const [name, text] of facts) list.append(element("div", {}, element("dt", { text: name }), element("dd", { text })));
  const stack = element("ol", { class: "stack" });
  for (const name of set.stack(site)) stack.append(element("li", { text: name }));
  return element(
    "div",
    { class: "pinned" },
    element("h3", { text: set.title(i) }),
    element("button", { type: "button", onclick: close, text: "Close", class: "close" }),
    list,
    stack.children.length ? stack : null,
  );
}

function belongings(set, i) {
  const facts = [];
  if (set.columns.thread) facts.push(["thread", `${set.columns.thread[i]}`]);
  if (set.columns.free_thread && set.columns.free_thread[i]) facts.push(["freed by thread", `${set.columns.free_thread[i] - 1}`]);
  if (set.columns.stream) facts.push(["stream", `${set.columns.stream[i]}`]);
  if (set.columns.pass && set.columns.pass[i]) facts.push(["pass", set.passes[set.columns.pass[i] - 1][0]]);
  if (set.columns.lifetime) facts.push(["class", set.lifetimes[set.columns.lifetime[i]]]);
  return facts;
}

function sameSite(set, site) {
  if (site < 0) return [];
  const { count, bytes } = set.sumOf((one) => one === site);
  return [["same site", `${plural(count, "object")}, ${bytesText(bytes)}: marked in the map`]];
}

function roomText(map, tick, many) {
  if (!map.segments.at.length) return "";
  const { holes, held } = Side.holes(map, tick);
  const largest = holes.reduce((most, hole) => Math.max(most, hole[1]), 0);
  const total = held.reduce((sum, [from, to]) => sum + to - from, 0);
  const whose = many ? `${map.data.name}: held` : "Held";
  if (map.set.merged) return `${whose} ${bytesText(total)}.`; // where merged objects leave room is not known
  return `${whose} ${bytesText(total)}; the largest request that still fits: ${bytesText(largest)}.`;
}

/** Who lives at a moment in the maps of one set, and what each of these has room for then. `many`: there are more maps. */
function livingTable(maps, tick, many, pick, colourOf) {
  const { set } = maps[0];
  const { objects, bytes, all, merged } = set.livingAt(tick, MOST_LIVING);
  const rows = objects.map((i) => ({
    cells: [set.site ? set.siteText(set.site[i]) : `object ${countText(set.number(i))}`, bytesText(set.bytes[i]),
      percentText(set.bytes[i], bytes), set.lifetimeText(i)],
    swatch: colourOf(i),
    pick: () => pick(i),
  }));
  const apart = all - merged.count;
  let more = apart > objects.length ? `; the largest ${countText(objects.length)} of them` : "";
  if (merged.count) more = `; ${countText(merged.count)} of them, ${bytesText(merged.bytes)}, are merged with others${apart > objects.length ? `, the largest ${countText(objects.length)} of the rest` : ""}`;
  return element(
    "div",
    { class: "living" },
    element("h3", { text: `${many && maps.length === 1 ? `${maps[0].data.name}: who` : "Who"} lives at ${set.momentText(tick)}?` }),
    element("p", { class: "note", text: `${plural(all, "object")}, ${bytesText(bytes)}${more}.` }),
    objects.length > MOST_PRINTED ? element("p", { class: "note printed", text: `On paper the largest ${MOST_PRINTED}.` }) : null,
    ...maps.map((map) => roomText(map, tick, many)).filter((text) => text).map((text) => element("p", { class: "note", text })),
    tableOf("Objects that live at this moment, largest first", ["object", "size", "share", "lives"], rows),
  );
}
