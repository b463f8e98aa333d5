// The scene: draws what the server's cleaner did. It decides nothing about records by itself.

import { ask, counted, tell } from "/static/page.js";

const $ = (selector) => document.querySelector(selector);
const next = { idle: "Let the cleaner look", planned: "Mark: fill the map", marked: "Sweep: keep the survivors", swept: "Commit: swap the files", committed: "Let the cleaner look" };
const shows = { marked: "#map", swept: "#new-file", committed: "#log" };
const isNarrow = matchMedia("(max-width: 640px)"), isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
let state = null, gone = new Map();

function made(tag, className, ...texts) {
  const element = document.createElement(tag);
  element.className = className;
  for (const text of texts) element.append(text);
  return element;
}

function box(record, className) {
  const value = made("span", "", record.value === null ? "✕ null" : record.value);
  const element = made("div", `record ${className}`, made("span", "offset", String(record.offset)), made("b", "", record.key), value);
  element.append(made("span", "waits", !record.waits ? "" : record.waits === "0 ms" ? "may go" : `stays ${record.waits}`));
  element.setAttribute("role", "listitem");
  element.dataset.offset = record.offset;
  element.title = `offset ${record.offset}: ${record.key} = ${record.value ?? "null"}${record.verdict ? `\n${record.verdict}` : ""}`;
  element.setAttribute("aria-label", element.title);
  return element;
}

function className(record, isFirst) {
  return [record.section, record.value === null && "null", record.goes && "goes", isFirst && "first"].filter(Boolean).join(" ");
}

function rows(table, entries, isNew) {
  $(`${table} tbody`).replaceChildren(...entries.map(([key, value]) => {
    const row = made("tr", isNew ? "new" : "", made("td", "", key), made("td", "", String(value)));
    return row;
  }));
}

function draw(now) {
  for (const record of state ? state.records : []) gone.set(record.offset, record);
  for (const record of now.records) gone.delete(record.offset);
  const all = [...now.records.map((r) => [r, false]), ...[...gone.values()].map((r) => [r, true])].sort((a, b) => a[0].offset - b[0].offset);
  let segment = null;
  $("#log").replaceChildren(...all.map(([record, isGone]) => {
    if (isGone) return box({ ...record, value: "gone", verdict: null, waits: null }, "gone");
    const isFirst = segment !== null && record.segment !== segment;
    segment = record.segment;
    return box(record, className(record, isFirst));
  }));
  state = now;
  sessionStorage.setItem("scene", now.id);
  sessionStorage.setItem("gone", JSON.stringify([...gone.values()]));
  $("#scene").dataset.phase = now.phase;
  $("#scene-message").textContent = now.message;
  $("#scene-clock").textContent = now.clock.replace(/:\d\d\.\d+Z$/, "Z");
  $("#step").textContent = next[now.phase];
  const steps = [...document.querySelectorAll("#steps li")], at = steps.findIndex((item) => item.dataset.phase === now.phase);
  steps.forEach((item, i) => { item.classList.toggle("now", i === at); item.classList.toggle("done", i < at); });
  // What mark and sweep have made is still to be seen after the commit.
  if (now.phase !== "committed") {
    const byOffset = new Map(now.records.map((r) => [r.offset, r]));
    $("#new-file").replaceChildren(...now.survivors.map((offset) => box(byOffset.get(offset), className(byOffset.get(offset)))));
  }
  $("#scene-columns").classList.toggle("past", now.phase === "committed");
  rows("#latest", Object.entries(now.latest));
  $("#why").replaceChildren(...now.why.map((sentence) => made("li", "", sentence)));
  $("#totals").textContent = `log start ${now.log_start} · delete retention point ${now.delete_retention_point} · first dirty ${now.first_dirty} · log end ${now.log_end} · ${counted(now.passes, "pass", "passes")}, ${counted(now.removed.obsolete, "obsolete record")} and ${counted(now.removed.tombstone, "tombstone")} removed`;
}

// Mark, as it went: the dirty section is read newest first; a key that the map does not know goes in.
async function showReading(now) {
  const dirty = now.records.filter((r) => r.verdict && r.offset >= now.first_dirty).reverse();
  const seen = [];
  for (const record of dirty) {
    const element = $(`#log [data-offset="${record.offset}"]`);
    element?.classList.add("read");
    if (now.offset_map[record.key] === record.offset) seen.push([record.key, record.offset]);
    rows("#map", seen);
    if (!isCalm && waiting < 2) await new Promise((resolve) => setTimeout(resolve, 160));
    element?.classList.remove("read");
  }
  showMap(now);
}

function showMap(now) {
  if (now.phase === "committed") return;
  rows("#map", Object.entries(now.offset_map).sort((a, b) => a[1] - b[1]));
}

// Let the scene's cleaner, log or clock do something, one after the other; without a name, begin a scene.
let turn = Promise.resolve(), waiting = 0;
function act(name, body = () => ({})) {
  waiting += 1;
  $("#scene").setAttribute("aria-busy", "true");
  turn = turn.then(() => play(name, body)).finally(() => {
    waiting -= 1;
    if (!waiting) $("#scene").setAttribute("aria-busy", "false");
  });
  return turn;
}

async function play(name, body) {
  try {
    const before = state ? state.phase : "idle", isNew = !name || !state;
    const now = await ask("POST", isNew ? "/api/scene" : `/api/scene/${state.id}/${name}`, isNew ? {} : body());
    if (isNew) {
      state = null;
      gone = new Map();
      nextValue(now);
    }
    draw(now);
    if (isNarrow.matches && now.phase !== before && shows[now.phase]) $(shows[now.phase]).scrollIntoView({ block: "center" });
    if (before === "planned" && now.phase === "marked") await showReading(now);
    else showMap(now);
  } catch (error) {
    const isOver = /scene is over/.test(error.message), said = isOver ? "That scene was over: this is a new one." : error.message;
    tell(said);
    $("#scene-message").textContent = said;
    if (isOver) begin();
  }
}

function begin() {
  return act("");
}

// A scene goes on where it was if the page is loaded again.
async function resume() {
  const answer = await fetch(`/api/scene/${sessionStorage.getItem("scene")}`);
  if (!answer.ok) return begin();
  const now = await answer.json();
  gone = new Map(JSON.parse(sessionStorage.getItem("gone") || "[]").map((record) => [record.offset, record]));
  draw(now);
  nextValue(now);
  showMap(state);
  $("#scene").setAttribute("aria-busy", "false");
}

let sent = 0;
function nextValue(now) {
  sent = now.log_end + 1;
  $("#send").elements.value.value = `V${sent}`;
}
$("#send").addEventListener("submit", (event) => {
  event.preventDefault();
  const fields = event.target.elements;
  const record = { key: fields.key.value, value: fields.value.value };
  act("send", () => record);
  fields.value.value = `V${++sent}`;
});
$("#send-null").addEventListener("click", () => {
  const form = $("#send");
  const record = { key: form.elements.key.value, value: null };
  if (form.reportValidity()) act("send", () => record);
});
$("#roll").addEventListener("click", () => act("roll"));
$("#step").addEventListener("click", () => act("step", () => ({ phase: state.phase }))); // the one that it says
$("#again").addEventListener("click", begin);
for (const button of document.querySelectorAll("[data-advance]")) button.addEventListener("click", () => act("advance", () => ({ ms: Number(button.dataset.advance) })));
sessionStorage.getItem("scene") ? resume().catch(begin) : begin();
