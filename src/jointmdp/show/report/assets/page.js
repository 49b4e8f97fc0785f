"use strict";
// The report: everything is drawn from the JSON in this page; nothing is fetched. Plain SVG and tables by hand: the
// smallest plotting library that has bands would be larger than the page, its data included.
const data = JSON.parse(document.getElementById("data").textContent);
const S = data.states.length, A = data.actions.length, PAIRS = (A * (A - 1)) / 2;
const $ = (id) => document.getElementById(id);
const WORDS = { time: "at the same time", state: "in the same state", none: "not at all" };
// Gaps are advantages: positive where the first action is the better one, which gives more or costs less.
const [GIVES, RETURN, MORE, LESS] = data.isCost ? ["costs", "cost", "less", "more"] : ["gives", "return", "more", "less"];
const STEP = innerWidth < 700 ? 10 : 50; // rows that a table grows by

function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") node.addEventListener("click", value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}
const fill = (id, ...children) => $(id).replaceChildren(...children.flat());

// -- numbers --------------------------------------------------------------------------------------------------------

const pair = (a, b) => a * A - (a * (a + 1)) / 2 + b - a - 1; // of a < b
const mean = (s, a) => data.mean[s * A + a];
const variance = (s, a) => data.variance[s * A + a];
const isHere = (s, a) => Number.isFinite(mean(s, a));
const actionsOf = (s) => [...Array(A).keys()].filter((a) => isHere(s, a));

function gapVariance(s, a, b, sharing = data.sharing) {
  if (a === b) return 0;
  if (sharing === "none") return variance(s, a) + variance(s, b);
  const found = data.gaps[sharing];
  return found ? found[s * PAIRS + pair(Math.min(a, b), Math.max(a, b))] : null;
}
const gapMean = (s, a, b) => { // by itself: a difference of rounded means would lose its digits
  if (a === b) return 0;
  return (a < b ? 1 : -1) * data.gapMeans[s * PAIRS + pair(Math.min(a, b), Math.max(a, b))];
};
const correlation = (s, a, b) => {
  const both = variance(s, a) * variance(s, b);
  if (a === b) return variance(s, a) > 0 ? 1 : null;
  return both > 0 ? Math.max(-1, Math.min(1, (variance(s, a) + variance(s, b) - gapVariance(s, a, b)) / 2 / Math.sqrt(both))) : null;
};
const OWN = data.own;
const RIVAL = data.states.map((_, s) => {
  const others = actionsOf(s).filter((a) => a !== OWN[s]);
  return others.length ? others.reduce((best, a) => (gapMean(s, a, best) > 0 ? a : best)) : OWN[s];
});
const baseline = (s) => OWN[s]; // the policy's most likely action
const rival = (s) => RIVAL[s]; // the best other one by its mean, or itself
const minus = ([low, high]) => [-high, -low];

// The certified law of Z(s,a) − Z(s,b), turned round where the other difference was computed.
function lawOf(s, a, b) {
  const law = data.laws[[s, Math.min(a, b), Math.max(a, b)].join()];
  if (!law || a < b) return law;
  const last = law.x.length - 1;
  return {
    x: law.x.map((_, i) => -law.x[last - i]),
    low: law.x.map((_, i) => 1 - (i < last ? law.high[last - i - 1] : 0)),
    high: law.x.map((_, i) => 1 - (i < last ? law.low[last - i - 1] : 0)),
    better: law.worse, worse: law.better, tie: law.tie, certified: law.certified,
    quantiles: law.quantiles.map((_, i) => minus(law.quantiles[law.quantiles.length - 1 - i])),
    lowest: minus(law.highest), highest: minus(law.lowest), mean: law.mean && minus(law.mean),
  };
}

// What a mean and a variance alone guarantee: Cantelli's inequality.
function cantelli(m, v, x) {
  if (v === 0) return m > x ? [0, 0] : [1, 1];
  const off = (x - m) ** 2;
  return x < m ? [0, v / (v + off)] : [1 - v / (v + off), 1];
}
function better(s, a, b) {
  const law = lawOf(s, a, b);
  if (law) return law.better;
  const [low, high] = cantelli(gapMean(s, a, b), gapVariance(s, a, b), 0);
  return [1 - high, 1 - low];
}
const runs = (m, v) => (m === 0 ? Infinity : Math.max(1, Math.ceil((1.6448536 ** 2 * v) / m ** 2)));

function number(x) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (!Number.isFinite(x)) return "∞";
  if (x === 0) return "0"; // also −0
  const size = Math.abs(x);
  if (size >= 1e7 || (size > 0 && size < 1e-3)) return x.toExponential(2).replaceAll("-", "−");
  return x.toLocaleString("en", { maximumSignificantDigits: size >= 1000 ? 6 : 4 }).replace("-", "−");
}
const span = ([low, high], digits = 3) => {
  const [a, b] = [low, high].map((x) => x.toFixed(digits));
  return a === b ? a : `${a} – ${b}`;
};
const amounts = ([low, high]) => (number(low) === number(high) ? number(low) : `${number(low)} … ${number(high)}`);
const percent = (x) => `${(100 * x).toFixed(Math.abs(x) < 0.0995 ? 1 : 0)} %`.replace("-", "−");

// -- what is chosen -------------------------------------------------------------------------------------------------

const chosen = { state: 0, first: 0, second: 0 };
function choose(state, first = rival(state), second = baseline(state)) {
  Object.assign(chosen, { state, first, second });
  const hash = `#state=${state}&action=${first}&other=${second}`;
  try { history.replaceState(null, "", hash); } catch { /* some viewers forbid it */ }
  show();
}
function fromAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const [s, a, b] = ["state", "action", "other"].map((name) => Number.parseInt(asked.get(name), 10));
  if (s >= 0 && s < S) return isHere(s, a) && isHere(s, b) && a !== b ? [s, a, b] : [s];
  return [data.start];
}

// -- the map --------------------------------------------------------------------------------------------------------

const gain = (s) => gapMean(s, rival(s), baseline(s));
const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;
function shade(part) { // from the ground to blue, also for colour-blind eyes; null is no number
  const [from, to] = isDark() ? [[38, 44, 51], [120, 190, 245]] : [[238, 241, 245], [0, 96, 168]];
  const mix = from.map((x, i) => Math.round(x + (to[i] - x) * part));
  const light = (0.299 * mix[0] + 0.587 * mix[1] + 0.114 * mix[2]) / 255;
  return { back: `rgb(${mix})`, ink: light > 0.55 ? "#000" : "#fff" };
}
function drawMap() {
  if (!data.grid) { $("map").remove(); return; }
  const { columns, cells } = data.grid;
  const values = data.states.map((_, s) => Math.max(0, gain(s)));
  const most = Math.max(...values), top = most || 1;
  $("map").style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
  $("map").setAttribute("role", "group");
  $("map").setAttribute("aria-label", "Map of the states; arrow keys move");
  const letters = columns <= 24;
  const inks = [...Array(101).keys()].map((i) => shade(i / 100));
  const words = data.actions.map((name, a) => (letters ? data.arrows[a] || /^action (\d+)$/.exec(name)?.[1] || [...name].slice(0, 2).join("") : ""));
  fill("map", cells.map((s) => {
    if (s === null) return h("span");
    const cell = document.createElement("button"), colour = inks[Math.round((100 * values[s]) / top)];
    cell.type = "button";
    cell.id = `cell-${s}`;
    cell.tabIndex = -1;
    cell.style.cssText = `background:${colour.back};color:${colour.ink}`;
    cell.textContent = words[baseline(s)];
    return cell;
  }));
  const under = (event) => event.target.closest("button")?.id.slice(5);
  $("map").addEventListener("click", (event) => under(event) && choose(Number(under(event))));
  $("map").addEventListener("mouseover", (event) => {
    const s = under(event);
    if (s) event.target.title = `${data.states[s]}: policy ${data.actions[baseline(s)]}; best other ${data.actions[rival(s)]} ${GIVES} ${number(gain(s))} ${MORE}`;
  });
  const ends = [shade(0).back, shade(1).back];
  const key = most > 0 ? ["0 ", h("i", { style: `background:linear-gradient(90deg,${ends})` }), ` ${number(top)}: how much ${MORE} the best other action ${GIVES} on average. `]
    : [`Nowhere does another action ${GIVES.slice(0, -1)} ${MORE} on average. `];
  $("map").after(h("p", { class: "key" }, ...key, letters ? "In the cells: the policy's action." : ""));
  $("map").addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    if (!move) return;
    event.preventDefault();
    for (let i = cells.indexOf(chosen.state) + move; i >= 0 && i < cells.length; i += move) {
      if (Math.abs(move) === 1 && Math.floor(i / columns) !== Math.floor((i - move) / columns)) return;
      if (cells[i] !== null) { choose(cells[i]); $(`cell-${cells[i]}`).focus(); return; }
    }
  });
}

// -- the table of states --------------------------------------------------------------------------------------------

const COLUMNS = [
  ["state", "state", (row) => row.state],
  ["policy", "policy", (row) => data.actions[row.own]],
  ["best other", "rival", (row) => data.actions[row.rival]],
  [`${GIVES} ${MORE}`, "gain", (row) => (row.own === row.rival ? -Infinity : row.gain)],
  ["±", "std", (row) => row.std],
  ["P(better)", "better", (row) => row.better[0]],
];
const order = { by: "gain", falling: true };
let limit = STEP;
const rows = data.states.map((name, s) => {
  const own = baseline(s), other = rival(s);
  const v = gapVariance(s, other, own);
  return { state: s, name, own, rival: other, gain: gain(s), std: Math.sqrt(v), better: own === other ? [0, 0] : better(s, other, own) };
});
function drawStates() {
  const wanted = $("search").value.trim().toLowerCase(), only = $("only").checked;
  const key = COLUMNS.find(([, name]) => name === order.by)[2];
  const found = rows.filter((row) => row.name.toLowerCase().includes(wanted) && (!only || row.gain > data.meanError));
  found.sort((x, y) => (key(x) < key(y) ? -1 : key(x) > key(y) ? 1 : x.state - y.state) * (order.falling ? -1 : 1));
  const head = COLUMNS.map(([title, name], i) => h("th", {
    scope: "col", class: i < 3 ? "word" : null,
    "aria-sort": order.by === name ? (order.falling ? "descending" : "ascending") : null,
  }, h("button", { type: "button", onclick: () => {
    order.falling = order.by === name ? !order.falling : i > 2;
    order.by = name;
    drawStates();
  } }, title)));
  const body = found.slice(0, limit).map((row) => h("tr", { class: row.state === chosen.state ? "chosen" : null },
    h("td", {}, h("button", { type: "button", class: "link", onclick: () => { choose(row.state); $("gap").focus(); } }, row.name)),
    h("td", { class: "word" }, data.actions[row.own]),
    h("td", { class: "word" }, row.own === row.rival ? "–" : data.actions[row.rival]),
    ...(row.own === row.rival ? ["–", "–", "–"] : [number(row.gain), number(row.std), span(row.better, 2)]).map((text) => h("td", {}, text))));
  fill("states", h("thead", {}, h("tr", {}, head)), h("tbody", {}, body));
  $("more").hidden = found.length <= limit;
  $("shown").textContent = `${Math.min(limit, found.length).toLocaleString("en")} of ${found.length.toLocaleString("en")} states`;
}

// -- one state ------------------------------------------------------------------------------------------------------

function drawActions() {
  const { state: s, first, second } = chosen, own = baseline(s);
  const likely = new Map(data.policy[s]);
  const head = ["action", data.ownTitle, `mean ${RETURN}`, "±", `${MORE} than ${data.actions[own]}`, "±", "P(better)"];
  const body = actionsOf(s).map((a) => h("tr", { class: a === first || a === second ? "chosen" : null },
    h("td", {}, a === own ? data.actions[a] + " *"
      : h("button", { type: "button", class: "link", onclick: () => choose(s, a, own) }, data.actions[a])),
    h("td", {}, likely.has(a) ? percent(likely.get(a)) : "–"),
    h("td", {}, number(mean(s, a))), h("td", {}, number(Math.sqrt(variance(s, a)))),
    ...(a === own ? ["–", "–", "–"] : [number(gapMean(s, a, own)), number(Math.sqrt(gapVariance(s, a, own))),
      span(better(s, a, own), 2)]).map((text) => h("td", {}, text))));
  $("state-title").textContent = S > 1 ? `In ${data.states[s]}` : data.states[s];
  fill("actions", h("thead", {}, h("tr", {}, head.map((title) => h("th", { scope: "col" }, title)))), h("tbody", {}, body));
}

function drawChoice() {
  const { state: s, first, second } = chosen;
  for (const [id, picked] of [["first", first], ["second", second]]) {
    fill(id, actionsOf(s).map((a) => h("option", { value: a, selected: a === picked }, data.actions[a])));
    $(id).value = picked;
  }
}

function drawAnswer() {
  const { state: s, first: a, second: b } = chosen;
  if (a === b) { $("answer").textContent = "There is only one action here: nothing to compare."; return; }
  const m = gapMean(s, a, b), [low, high] = better(s, a, b), law = lawOf(s, a, b);
  const [x, y] = [data.actions[a], data.actions[b]];
  const ends = law && law.mean ? ` (${amounts(m >= 0 ? law.mean : minus(law.mean))})` : "";
  const amount = `On average ${x} ${GIVES} ${number(Math.abs(m))}${ends} ${m >= 0 ? MORE : LESS} than ${y}; one difference varies by ± ${number(Math.sqrt(gapVariance(s, a, b)))}. `;
  const often = ([p, q]) => span([100 * p, 100 * q], 1);
  let chance = "How often, mean and variance alone do not say.";
  if (law) chance = `It ${GIVES} ${MORE} in ${often(law.better)} of 100 cases${law.tie[1] >= 0.0005 ? `, and exactly as much in ${often(law.tie)}` : ""}.`;
  else if (low >= 0.05) chance = `It ${GIVES} ${MORE} in at least ${(100 * low).toFixed(1)} of 100 cases.`;
  else if (high <= 0.95) chance = `It ${GIVES} ${MORE} in at most ${(100 * high).toFixed(1)} of 100 cases.`;
  $("answer").textContent = amount + chance;
}

// -- the law --------------------------------------------------------------------------------------------------------

function ticks(low, high, count) {
  const raw = (high - low) / count, unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * unit).find((k) => k >= raw);
  const found = [];
  for (let x = Math.ceil(low / step) * step; x <= high + step * 1e-9; x += step) found.push(Math.abs(x) < step / 1e6 ? 0 : x);
  return found;
}
const svg = (tag, attributes, ...children) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
};
function drawLaw() {
  const { state: s, first: a, second: b } = chosen, law = lawOf(s, a, b);
  const m = gapMean(s, a, b), sd = Math.sqrt(gapVariance(s, a, b));
  if (a === b) { fill("law"); $("law-note").textContent = ""; return; }
  const [W, H, left, right, top, bottom] = [Math.max(280, $("law").clientWidth), 300, 40, 14, 24, 46];
  let low = Math.min(0, m - 3.2 * sd), high = Math.max(0, m + 3.2 * sd);
  if (law) {
    const seen = law.x.filter((_, i) => law.high[i] > 0.002 && law.low[Math.max(0, i - 1)] < 0.998);
    if (seen.length) [low, high] = [Math.min(0, Math.max(seen[0], m - 6 * sd)), Math.max(0, Math.min(seen[seen.length - 1], m + 6 * sd))];
  }
  const room = (high - low || 1) * 0.05;
  [low, high] = [low - room, high + room];
  const X = (x) => left + ((Math.max(low, Math.min(high, x)) - low) / (high - low)) * (W - left - right);
  const Y = (p) => top + (1 - p) * (H - top - bottom);
  const parts = [];
  for (const p of [0, 0.25, 0.5, 0.75, 1]) parts.push(svg("line", { class: "grid", x1: left, x2: W - right, y1: Y(p), y2: Y(p) }),
    svg("text", { class: "soft", x: left - 6, y: Y(p) + 4, "text-anchor": "end" }, String(p)));
  for (const x of ticks(low, high, W / 90)) parts.push(svg("text", { class: "soft", x: X(x), y: H - bottom + 18, "text-anchor": "middle" }, number(x)));
  parts.push(svg("text", { x: (left + W - right) / 2, y: H - 6, "text-anchor": "middle" }, `${RETURN} of ${data.actions[data.isCost ? b : a]} minus ${RETURN} of ${data.actions[data.isCost ? a : b]}`));
  if (law) {
    const path = (values) => {
      let d = `M${X(low)},${Y(0)}`;
      law.x.forEach((x, i) => { d += `H${X(x).toFixed(1)}V${Y(values[i]).toFixed(1)}`; });
      return d + `H${X(high)}`;
    };
    const back = [...law.x.keys()].reverse().map((i) => `H${X(law.x[i]).toFixed(1)}V${Y(i ? law.low[i - 1] : 0).toFixed(1)}`).join("");
    parts.push(svg("path", { class: "band", d: `${path(law.high)}V${Y(law.low[law.low.length - 1]).toFixed(1)}${back}Z` }),
      svg("path", { class: "edge", d: path(law.high) }), svg("path", { class: "edge", d: path(law.low) }));
  }
  const curve = (side) => [...Array(161).keys()].map((i) => {
    const x = low + ((high - low) * i) / 160;
    return `${i ? "L" : "M"}${X(x).toFixed(1)},${Y(cantelli(m, sd * sd, x)[side]).toFixed(1)}`;
  }).join("");
  parts.push(svg("path", { class: "known", d: curve(0) }), svg("path", { class: "known", d: curve(1) }));
  parts.push(svg("line", { class: "zero", x1: X(0), x2: X(0), y1: top, y2: H - bottom }));
  const wide = (a) => 34 + 7.5 * (data.actions[a].length + 11);
  if (X(0) > wide(b)) parts.push(svg("text", { x: X(0) - 8, y: top - 7, "text-anchor": "end" }, `◂ ${data.actions[b]} ${GIVES} ${MORE}`));
  if (W - X(0) > wide(a)) parts.push(svg("text", { x: X(0) + 8, y: top - 7 }, `${data.actions[a]} ${GIVES} ${MORE} ▸`));
  parts.push(svg("path", { class: "mark", d: `M${X(m)},${Y(0)}l-6,11h12z` }));
  const words = `Probability that ${data.actions[a]} ${GIVES} at most x ${MORE} than ${data.actions[b]}, in ${data.states[s]}`;
  fill("law", svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": words }, ...parts));
  $("law-note").textContent = `Height: the probability that the difference is at most x. Triangle: the mean. Dotted: what mean and variance alone leave open. ` +
    (law ? (law.certified ? "Blue: the law, between two curves that certainly hold it." : "Blue: the sampled law with a confidence band.")
      : "The law of this difference was not computed for this page (see the foot of the page).");
}

function drawNumbers() {
  const { state: s, first: a, second: b } = chosen, law = lawOf(s, a, b);
  const m = gapMean(s, a, b), v = gapVariance(s, a, b), sd = Math.sqrt(v);
  const quantile = (q) => [m - sd * Math.sqrt((1 - q) / q), m + sd * Math.sqrt(q / (1 - q))];
  const [low, high] = cantelli(m, v, 0);
  const lines = [
    ["P(better)", law && span(law.better), span([1 - high, 1 - low])],
    ["P(equal)", law && span(law.tie), null],
    ["5 % quantile", law && amounts(law.quantiles[0]), amounts(quantile(0.05))],
    ["median", law && amounts(law.quantiles[1]), amounts(quantile(0.5))],
    ["95 % quantile", law && amounts(law.quantiles[2]), amounts(quantile(0.95))],
    ["mean of the worst 5 %", law && amounts(law.lowest), amounts([m - sd * Math.sqrt(19), m])],
  ];
  fill("numbers", h("thead", {}, h("tr", {}, ["", law && !law.certified ? "sampled" : "the law", "moments alone"].map((t) => h("th", { scope: "col" }, t)))),
    h("tbody", {}, a === b ? [] : lines.map(([name, known, loose]) => h("tr", {}, h("td", {}, name), h("td", {}, known || "–"), h("td", {}, loose || "–")))));
}

function drawSharing() {
  const { state: s, first: a, second: b } = chosen, m = gapMean(s, a, b);
  const kinds = ["time", "state", "none"].filter((kind) => gapVariance(s, a, b, kind) !== null);
  fill("sharing", h("thead", {}, h("tr", {}, ["noise shared", "±", "runs to tell"].map((t) => h("th", { scope: "col" }, t)))),
    h("tbody", {}, kinds.map((kind) => {
      const v = gapVariance(s, a, b, kind);
      return h("tr", { class: kind === data.sharing ? "chosen" : null }, h("td", {}, WORDS[kind] + (kind === data.sharing ? " (this model)" : "")),
        h("td", {}, number(Math.sqrt(v))), h("td", {}, number(runs(m, v))));
    })));
  $("sharing-note").textContent = "Runs: pairs of simulated futures until the better of the two has the better average with 95 % probability (normal approximation).";
}

// -- where it comes from --------------------------------------------------------------------------------------------

function bars(id, entries, rest) {
  const least = Math.min(0, ...entries.map((e) => e[1])), most = Math.max(...entries.map((e) => e[1]), 1e-12);
  const place = (x) => (100 * (x - least)) / (most - least);
  fill(id, entries.flatMap(([name, share]) => [h("span", {}, name),
    h("span", { class: "track" }, h("span", { class: share < 0 ? "bar minus" : "bar", style: `left:${place(Math.min(0, share))}%;width:${place(Math.max(0, share)) - place(Math.min(0, share))}%` })),
    h("span", { class: "share" }, percent(share))]),
    rest === null ? [] : [h("span", {}, "others"), h("span"), h("span", { class: "share" }, percent(rest))]);
}
function drawParts() {
  const { state: s, first: a, second: b } = chosen;
  const parts = data.parts[[s, Math.min(a, b), Math.max(a, b)].join()];
  const total = gapVariance(s, a, b);
  if (!parts || !(total > 0)) {
    fill("by-step"); fill("by-state");
    $("where").hidden = S === 1;
    $("parts-note").textContent = a !== b && !(total > 0) ? "The difference is certain: there is no variance to split." : data.partsNote;
    return;
  }
  $("where").hidden = false;
  const rest = (entries) => { const left = 1 - entries.reduce((sum, e) => sum + e[1], 0); return Math.abs(left) >= 5e-4 ? left : null; };
  const steps = parts.steps.map((share, t) => [`step ${t}`, share]), states = parts.states.map(([i, share]) => [data.states[i], share]);
  bars("by-step", steps, rest(steps));
  bars("by-state", states, rest(states));
  $("parts-note").textContent = "Shares of the variance of the difference: what each step changes in what is expected of it, and in which state. A part is negative where shared noise takes away more than arises.";
}

// -- correlations ---------------------------------------------------------------------------------------------------

function drawCorrelation() {
  const s = chosen.state, here = actionsOf(s);
  const colour = (r) => `color-mix(in srgb, var(${r < 0 ? "--warm" : "--accent"}) ${Math.round(55 * Math.abs(r))}%, transparent)`;
  fill("correlation", h("thead", {}, h("tr", {}, h("th"), here.map((a) => h("th", { scope: "col" }, data.actions[a])))),
    h("tbody", {}, here.map((a) => h("tr", {}, h("th", { scope: "row" }, data.actions[a]), here.map((b) => {
      const r = correlation(s, a, b), text = r === null ? "–" : r.toFixed(2).replace("-", "−");
      return h("td", { style: r === null ? null : `background:${colour(r)}` },
        a === b ? text : h("button", { type: "button", "aria-label": `${data.actions[a]} and ${data.actions[b]}: ${text}`, onclick: () => choose(s, a, b) }, text));
    })))));
}

function show() {
  drawActions(); drawChoice(); drawAnswer(); drawLaw(); drawNumbers(); drawSharing(); drawParts(); drawCorrelation();
  for (const row of $("states").querySelectorAll("tr.chosen")) row.classList.remove("chosen");
  drawStates();
  for (const cell of document.querySelectorAll("#map button")) {
    const is = cell.id === `cell-${chosen.state}`;
    cell.setAttribute("aria-pressed", is);
    cell.tabIndex = is ? 0 : -1;
  }
}

if (data.isCost) [$("much").textContent, $("give").textContent, $("other").textContent] = ["How much less does", "cost than", "costs less"];
if (S === 1) document.body.classList.add("single"); // nothing to pick
$("title").textContent = data.title;
$("summary").textContent = data.summary;
$("wrong-note").textContent = data.wrongNote;
fill("foot", h("dl", {}, data.foot.flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])));
$("first").addEventListener("change", (e) => pick(Number(e.target.value), chosen.second, "first"));
$("second").addEventListener("change", (e) => pick(chosen.first, Number(e.target.value), "second"));
function pick(first, second, changed) { // the same action twice: the other one gives way
  if (first === second) [first, second] = changed === "first" ? [first, chosen.first] : [chosen.second, second];
  choose(chosen.state, first, second);
}
$("swap").addEventListener("click", () => choose(chosen.state, chosen.second, chosen.first));
$("search").addEventListener("input", () => { limit = STEP; drawStates(); });
$("only").addEventListener("change", () => { limit = STEP; drawStates(); });
$("more").addEventListener("click", () => { limit += 4 * STEP; drawStates(); });
addEventListener("resize", drawLaw);
addEventListener("hashchange", () => choose(...fromAddress()));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => location.reload());
drawMap();
choose(...fromAddress());
performance.mark("ready");
document.documentElement.dataset.ready = "yes";
