// Shows what /events tells: one message a second, with the batches that are new.
"use strict";

const token = new URLSearchParams(location.search).get("token");
const suffix = token ? "?token=" + encodeURIComponent(token) : "";
const KEPT = 600;
const queries = new Map();   // run id -> {name, active, failed, status, batches}
let chosen = null;           // [run id, name of the join]
let charts = [];
let clock = 0;               // the server's, in seconds

const $ = (id) => document.getElementById(id);
const make = (tag, text, attributes = {}) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
};
const whole = new Intl.NumberFormat("en", {maximumFractionDigits: 0});
const short = new Intl.NumberFormat("en", {notation: "compact", maximumFractionDigits: 1});
const count = (n) => n == null ? "–" : whole.format(n);
const rate = (n) => n == null ? "–" : short.format(n) + "/s";
const percent = (n) => n == null ? "–" : (100 * n).toFixed(1) + " %";
const seconds = (n) => n == null ? "–" : n.toFixed(n < 10 ? 1 : 0) + " s";
const time = (n) => new Date(1000 * n).toLocaleTimeString([], {hour12: false});
const bytes = (n) => n == null ? "–" : n < 1000 ? n + " B" : short.format(n).replace(/([A-Z])$/, " $1B");

// -- what is shown of a batch ---------------------------------------------------------------------

const join = (batch) => batch.joins[chosen[1]] || null;
const of = (name) => (batch) => { const one = join(batch); return one ? one[name] : null; };
const bound = (i) => (batch) => { const one = join(batch); return one && one.recall ? 100 * one.recall[i] : null; };
const part = (name) => (batch) => { const n = of(name)(batch); return n == null ? null : 100 * n; };
// Kafka says the most, the mean and the least of its partitions, Delta files and bytes: one of each is drawn.
const behind = (batch) => Object.entries(batch.behind).filter(([name]) => /^(max|numFiles)/.test(name))
  .reduce((sum, [, n]) => sum + n, 0);

const CHARTS = [
  {title: "Rows and results, per second", series: [["rows in", (b) => b.input_rate, "--a"],
    ["results", of("results_rate"), "--b"]], format: rate},
  {title: "Rows held, and the budget", series: [["held", of("stored"), "--a"],
    ["budget", of("budget"), "--b", [6, 4]], ["waiting", of("queued"), "--c", [2, 3]]], format: count},
  {title: "Bytes of state", series: [["state", of("bytes"), "--a"],
    ["sample", of("sample_bytes"), "--b", [6, 4]]], format: bytes},
  {title: "Bytes held, and the budget", when: (b) => join(b) && join(b).budget_bytes,
    series: [["held", of("held_bytes"), "--a"], ["budget", of("budget_bytes"), "--b", [6, 4]]], format: bytes},
  {title: "Rows left out, per second", series: [["shed", of("shed_rate"), "--a"],
    ["late", of("late_rate"), "--b", [6, 4]], ["filtered", of("filtered_rate"), "--c", [2, 3]]], format: rate},
  {title: "Recall, with its 95 % interval", band: true, series: [["low", bound(1), "--a", [2, 3]],
    ["recall", bound(0), "--a"], ["high", bound(2), "--a", [2, 3]]],
    format: (n) => n == null ? "–" : n.toFixed(1) + " %", range: [0, 100]},
  {title: "Seconds of a batch", series: [["batch", (b) => b.seconds, "--a"],
    ["since the one before ended", (b) => b.past, "--b", [6, 4]]], format: seconds},
  {title: "Behind the source, as it says", when: (b) => Object.keys(b.behind).length > 0,
    series: [["offsets or files", behind, "--a"]], format: count},
  {title: "Throttle: the part of the work that is done, and of the windows gone through (harvest)",
    when: (b) => join(b) && join(b).throttle != null,
    series: [["work", part("throttle"), "--a"], ["windows", part("harvest"), "--b", [6, 4]]],
    format: (n) => n == null ? "–" : n.toFixed(0) + " %", range: [0, 100]},
];

function now(batch, query) {
  const one = join(batch);
  const idle = query.active && /wait|no new data|idle/i.test(query.status);
  const shown = [
    ["Rows in", rate(batch.input_rate), "joined at " + rate(batch.joined_rate) + " of work"],
    ["Last batch", seconds(batch.seconds), `number ${batch.batch}, ${count(batch.rows)} rows`],
    ["Behind", seconds(idle ? 0 : Math.max(0, clock - batch.started)),
      Object.entries(batch.behind).map(([name, n]) => `${count(n)} ${name}`).join("; ") || "since the last batch began"],
  ];
  if (!one) return shown;
  const used = one.budget ? percent(one.stored / one.budget) + " of " + count(one.budget)
    : one.budget_bytes ? percent(one.held_bytes / one.budget_bytes) + " of " + bytes(one.budget_bytes) : "no budget";
  shown.push(
    ["Rows held", count(one.stored), used],
    ["State", bytes(one.bytes), "and a sample of " + bytes(one.sample_bytes)],
    ["Results", count(one.results), rate(one.results_rate)],
    ["Recall", one.recall ? percent(one.recall[0]) : "–",
      one.recall ? `95 % interval ${percent(one.recall[1])} to ${percent(one.recall[2])}` : "not estimated"],
    ["Shed", count(one.shed), Object.entries(one.shed_by).map(([by, n]) => `${count(n)} by ${by}`).join(", ") || "rows"],
    ["Late", count(one.late), "rows"],
    ["Filtered", count(one.filtered), "rows"]);
  if (one.unmatched) shown.push(["Without a match", count(one.unmatched),
    one.uncertain ? count(one.uncertain) + " of them uncertain" : "all for certain"]);
  if (one.queued) shown.push(["In the queue", count(one.queued), "rows"]);
  if (one.throttle != null) shown.push(["Throttle", percent(one.throttle),
    one.capacity == null ? "of the work is done" : count(one.capacity) + " comparisons a second"]);
  if (one.harvest != null) shown.push(["Harvest", percent(one.harvest), "of the windows is gone through"]);
  return shown;
}

// -- drawing --------------------------------------------------------------------------------------

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function build() {
  const batches = queries.get(chosen[0]).batches;
  charts.forEach((chart) => chart.plot.destroy());
  $("charts").replaceChildren();
  charts = CHARTS.filter((one) => !one.when || batches.some(one.when)).map((one) => {
    const figure = make("figure", undefined, {role: "group"});
    figure.append(make("figcaption", one.title));
    const place = make("div", undefined, {role: "img"});
    figure.append(place);
    $("charts").append(figure);
    const axis = {stroke: colour("--faint"), grid: {stroke: colour("--line"), width: 1}, ticks: {stroke: colour("--line")}};
    const plot = new uPlot({
      width: Math.max(place.clientWidth, 200), height: 170, cursor: {drag: {x: true, y: false}},
      scales: {y: {range: (u, low, high) => one.range || [Math.min(0, low || 0), (high || 1) * 1.05]}},
      axes: [{...axis, space: 80, values: (u, ticks) => ticks.map(time)}, {...axis, size: 64, values: (u, ticks) => ticks.map((t) => one.format(t))}],
      series: [{label: "time", value: (u, v) => v == null ? "–" : time(v)}, ...one.series.map(([label, , stroke, dash]) => ({
        label, stroke: colour(stroke), width: 2, dash, spanGaps: true, value: (u, v) => one.format(v)}))],
      bands: one.band ? [{series: [3, 1], fill: colour("--band")}] : [],
    }, data(one, batches), place);
    return {...one, place, plot};
  });
  update();
}

const data = (one, batches) => [batches.map((b) => b.ended), ...one.series.map(([, get]) => batches.map(get))];

function update() {
  const query = queries.get(chosen[0]);
  const {batches} = query;
  for (const chart of charts) {
    chart.plot.setData(data(chart, batches));
    const last = batches[batches.length - 1];
    chart.place.setAttribute("aria-label", chart.title + ". Now: " +
      chart.series.map(([label, get]) => `${label} ${last ? chart.format(get(last)) : "–"}`).join(", "));
  }
  if (!batches.length) return;
  const last = batches[batches.length - 1];
  rows($("streams"), ["stream", "arrived", "stored", "queued", "expired", "shed", "filtered", "late"],
    Object.entries((join(last) || {streams: {}}).streams).slice(0, 50).map(([name, s]) =>
      [name, s.arrived, s.stored, s.queued, s.expired, s.shed, s.filtered, s.late].map((v, i) => i ? count(v) : v)));
  rows($("batches"), ["batch", "ended", "seconds", "rows", "rows/s", "results", "held", "shed", "recall"],
    batches.slice(-20).reverse().map((b) => {
      const one = join(b) || {};
      return [b.batch, time(b.ended), b.seconds.toFixed(1), count(b.rows),
        count(b.joined_rate), count(one.results), count(one.stored), count(one.shed),
        one.recall ? percent(one.recall[0]) : "–"].map(String);
    }));
}

function rows(table, heads, body) {
  const head = make("tr");
  heads.forEach((name) => head.append(make("th", name, {scope: "col"})));
  const thead = make("thead"), tbody = make("tbody");
  thead.append(head);
  for (const cells of body) {
    const row = make("tr");
    cells.forEach((cell, i) => row.append(i ? make("td", cell) : make("th", cell, {scope: "row"})));
    tbody.append(row);
  }
  table.replaceChildren(thead, tbody);
}

function tick() {
  const query = queries.get(chosen[0]);
  const state = query.failed ? "failed: see the log of the job" : query.active ? query.status : "stopped";
  say(`${query.name}: ${state}`, query.failed);
  const last = query.batches[query.batches.length - 1];
  if (!last) return;
  const shown = now(last, query);
  const list = $("now");
  if (list.children.length !== shown.length) list.replaceChildren(...shown.map(() => {
    const card = make("div");
    const value = make("dd");
    value.append(make("span"), make("small"));
    card.append(make("dt"), value);
    return card;
  }));
  shown.forEach(([name, value, more], i) => {
    const card = list.children[i];
    const parts = [card.firstChild, card.lastChild.firstChild, card.lastChild.lastChild];
    [name, value, more].forEach((text, j) => { if (parts[j].textContent !== text) parts[j].textContent = text; });
  });
}

// Read out by a screen reader, so it changes only when there is something to say.
function say(text, bad) {
  if ($("state").textContent !== text) $("state").textContent = text;
  $("state").classList.toggle("bad", Boolean(bad));
}

// -- what comes in --------------------------------------------------------------------------------

function choices() {
  const all = [];
  for (const [id, query] of queries) {
    const names = new Set(query.batches.slice(-1).flatMap((b) => Object.keys(b.joins)));
    for (const name of names.size ? names : [""]) all.push([id, name, query.name + (name ? ": " + name : "")]);
  }
  const select = $("choice"), label = all.map((one) => one[2]).join("\n");
  if (select.dataset.label === label) return;
  select.dataset.label = label;
  select.replaceChildren(...all.map(([, , text], i) => make("option", text, {value: i})));
  select.disabled = all.length < 2;
  const at = Math.max(0, all.findIndex(([id, name]) => chosen && id === chosen[0] && name === chosen[1]));
  const choose = (i) => { chosen = all[i].slice(0, 2); select.value = i; build(); tick(); };
  select.onchange = () => choose(Number(select.value));
  if (all.length) choose(at);
}

function receive(event) {
  const told = JSON.parse(event.data);
  clock = told.time;
  let fresh = false;
  for (const one of told.queries) {
    const query = queries.get(one.id) || {batches: []};
    const last = query.batches.length ? query.batches[query.batches.length - 1].batch : -1;
    const batches = one.batches.filter((b) => b.batch > last);
    fresh = fresh || batches.length > 0;
    queries.set(one.id, {...one, batches: query.batches.concat(batches).slice(-KEPT)});
  }
  choices();
  if (!chosen) return;
  if (fresh) {
    const {batches} = queries.get(chosen[0]);
    const wanted = CHARTS.filter((one) => !one.when || batches.some(one.when)).length;
    if (wanted === charts.length) update(); else build();
  }
  tick();
}

function connect() {
  const source = new EventSource("events" + suffix);
  source.onmessage = receive;
  source.onerror = () => {
    say(source.readyState === EventSource.CLOSED
      ? "the page's address lacks its token, or the job has ended" : "no connection to the job; trying again", true);
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 5000);
  };
}

$("metrics").href = "metrics" + suffix;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chosen && build());
new ResizeObserver(() => charts.forEach(({place, plot}) =>
  plot.setSize({width: Math.max(place.clientWidth, 200), height: 170}))).observe($("charts"));
connect();
