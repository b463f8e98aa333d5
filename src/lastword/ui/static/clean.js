// Clean a topic: first what it would do, then the doing, watched.

import { ask, counted, number, refresh, tell } from "/static/page.js";

const $ = (selector) => document.querySelector(selector);

function line(text, className = "", href = "") {
  const made = document.createElement("p"), inner = href ? document.createElement("a") : made;
  if (href) { inner.href = href; made.append(inner); }
  inner.textContent = text;
  made.className = className;
  return made;
}

const many = { tombstone: "tombstones", "null key": "null keys" };
const reasons = (removed) => Object.entries(removed).filter(([, n]) => n).map(([why, n]) => `${number(n)} ${n === 1 ? why : many[why] || why}`).join(", ") || "nothing";
const sum = (values) => values.reduce((all, value) => all + value, 0);

// What would go is known when mark has read the keys, which is done on demand.
function outcome(records, removed) {
  if (!removed) return counted(records, "record");
  return `${number(records)} → ${counted(records - sum(Object.values(removed)), "record")}: ${reasons(removed)} would be removed`;
}

function together(removals) {
  const all = {};
  for (const [why, n] of removals.flatMap(Object.entries)) all[why] = (all[why] || 0) + n;
  return all;
}

// As many as can be read, and how many more there are.
function listed(all, lines) {
  const more = all.length - 100;
  return [...all.slice(0, 100).flatMap(lines), ...(more > 0 ? [line(`and ${counted(more, "more partition")}`, "faint")] : [])];
}

let planned = 0;
async function showPlan(topic, count = false) {
  const plan = $("#plan"), now = $("#clean-now"), force = $("#force").checked, mine = ++planned;
  now.disabled = $("#clean-count").disabled = true;
  try {
    const found = await ask("GET", `/api/topics/${topic}/plan?force=${force}${count ? "&count=true" : ""}`), due = found.filter((p) => p.is_clean);
    if (mine !== planned) return; // it was asked for otherwise meanwhile
    const removed = count ? together(due.map((p) => p.removed)) : null;
    plan.replaceChildren(line(`${due.length} of ${counted(found.length, "partition")} would be cleaned: ${outcome(sum(due.map((p) => p.records)), removed)}`),
      ...listed([...due, ...found.filter((p) => !p.is_clean)], (p) => [line(p.is_clean
        ? `partition ${p.partition}: would be cleaned (${p.sentence}), ${outcome(p.records, p.removed)}`
        : `partition ${p.partition}: would not be cleaned: ${p.sentence}`, p.is_clean ? "" : "faint"),
      ...p.first.map((first) => line(`partition ${p.partition}: ${first}`))]));
    now.disabled = !due.length;
    $("#clean-count").disabled = !due.length || count;
  } catch (error) {
    if (mine === planned) plan.replaceChildren(line(error.message, "error"));
  }
}

// What a pass did, with the account of it behind a link.
const done = (p) => line(`partition ${p.partition}: ${number(p.records_in)} → ${counted(p.records_out, "record")}; ${reasons(p.removed)} removed`, "", `/passes/${p.id}`);

async function cleanNow(topic) {
  const plan = $("#plan"), now = $("#clean-now"), began = Date.now(), step = line(""), seconds = document.createElement("span");
  seconds.setAttribute("aria-hidden", "true"); // else it would be read out again and again
  now.disabled = $("#force").disabled = $("#clean-count").disabled = true;
  $("#clean-dialog [data-close]").focus();
  try {
    let cleaning = await ask("POST", `/api/topics/${topic}/clean`, { force: $("#force").checked });
    while (cleaning.state === "waiting" || cleaning.state === "running") {
      const goesOn = cleaning.tasks ? `${cleaning.step}: ${cleaning.tasks_done} of ${cleaning.tasks} tasks` : cleaning.step || "waiting";
      if (step.textContent !== goesOn) step.textContent = goesOn;
      if (seconds.parentElement !== plan) plan.replaceChildren(step, seconds);
      seconds.textContent = `${Math.round((Date.now() - began) / 1000)} s`;
      await new Promise((resolve) => setTimeout(resolve, 400));
      cleaning = await ask("GET", `/api/cleanings/${cleaning.id}`);
    }
    const passes = cleaning.passes.filter((p) => !p.error), took = ((Date.now() - began) / 1000).toFixed(1);
    const all = `${counted(passes.length, "partition")} cleaned in ${took} s: ${number(sum(passes.map((p) => p.records_in)))} → ${counted(sum(passes.map((p) => p.records_out)), "record")}`;
    plan.replaceChildren(
      ...(cleaning.error ? [line(cleaning.error, "error")] : []),
      line(passes.length ? all : "Nothing was cleaned."),
      ...cleaning.expired.map((sentence) => line(sentence)),
      ...listed(passes, (p) => [done(p)]),
      ...listed(cleaning.left, (sentence) => [line(sentence, "faint")]));
    if (!$("#clean-dialog").open) tell(`${topic}: ${cleaning.error || (passes.length ? all : "nothing was cleaned")}`);
    await refresh();
  } catch (error) {
    await showPlan(topic); // it may be asked for again
    plan.prepend(line(error.message, "error"));
  }
  $("#force").disabled = false;
}

document.addEventListener("click", ({ target }) => {
  if (target.matches("[data-close]")) $("#clean-dialog").close();
  if (target.id === "clean-now") cleanNow($("#clean").dataset.topic);
  if (target.id === "clean-count") showPlan($("#clean").dataset.topic, true);
  if (target.id === "clean") {
    $("#clean-dialog").showModal();
    if ($("#force").disabled) return; // a cleaning is under way, and shown
    $("#force").checked = false;
    showPlan(target.dataset.topic);
  }
});
document.addEventListener("change", ({ target }) => { if (target.id === "force") showPlan($("#clean").dataset.topic); });
