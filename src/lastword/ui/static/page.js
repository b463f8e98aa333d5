// Every page: live parts refresh, buttons act, changes carry the token. Pages can be read without it.

const read = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
const keep = (name, value) => { try { value === null ? localStorage.removeItem(name) : localStorage.setItem(name, value); } catch { /* private mode */ } };
const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

// The token comes after the # of the address, which no server sees, and is taken off it at once.
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) history.replaceState(null, "", location.pathname + location.search);

export const number = (value) => value.toLocaleString("en");
export const counted = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;

export function tell(text) {
  const told = $("#told");
  told.textContent = text;
  told.classList.add("seen");
  clearTimeout(tell.timer);
  tell.timer = setTimeout(() => told.classList.remove("seen"), 6000);
}

async function isToken(token) {
  const answer = await fetch("/api/access", { headers: { "x-lastword-token": token } });
  return answer.ok && (await answer.json()).may_change;
}

// Ask for the token until it is the right one, or nobody wants to say it.
function askForToken() {
  const dialog = $("#token-dialog"), output = $("output", dialog);
  output.textContent = $("#token").value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    showAccess();
    resolve(dialog.returnValue === "ok");
  }, { once: true }));
}

$("#token-form").addEventListener("submit", async (event) => {
  if (event.submitter?.value !== "ok") return;
  event.preventDefault();
  const token = $("#token").value.trim().split("token=").at(-1);
  if (await isToken(token).catch(() => false)) {
    keep("token", token);
    $("#token-dialog").close("ok");
  } else {
    $("#token-form output").textContent = "That is not the token of this page.";
  }
});
$("#unlock")?.addEventListener("click", askForToken);

async function fetched(path, options) {
  try {
    return await fetch(path, options);
  } catch {
    throw new Error("the page's server does not answer");
  }
}

// Ask the API. A change that is refused for want of the token asks for it, once.
export async function ask(method, path, body, isAgain = false) {
  const headers = { "content-type": "application/json" };
  if (method !== "GET" && read("token")) headers["x-lastword-token"] = read("token");
  const answer = await fetched(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const found = await answer.json().catch(() => ({ message: answer.statusText }));
  if (answer.ok) return found;
  if (answer.status === 401 && method !== "GET") {
    keep("token", null);
    if (!isAgain && await askForToken()) return ask(method, path, body, true);
    throw new Error("Nothing was changed: changes need the token.");
  }
  throw new Error(found.message || `it answered ${answer.status}`);
}

function showAccess() {
  const unlock = $("#unlock");
  if (unlock) unlock.hidden = Boolean(read("token"));
}

// A token of an earlier start is good for nothing; and a link with a wrong one must not take the right one away.
async function checkToken() {
  if (given && await isToken(given)) keep("token", given);
  else if (given) tell("The token in that address is not the one of this page.");
  if (read("token") && !(await isToken(read("token")))) keep("token", null);
  showAccess();
}

// Moments, as how long ago they were.
const steps = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
const ago = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });
function showTimes(within = document) {
  for (const time of $$("time[data-ms]", within)) {
    const seconds = (Number(time.dataset.ms) - Date.now()) / 1000;
    const [size, unit] = steps.find(([size]) => Math.abs(seconds) >= size) || steps.at(-1);
    if (Math.abs(seconds) < 400 * 86400) time.textContent = ago.format(Math.round(seconds / size), unit);
  }
}

// Fetch this page again, and put the live parts that differ in the place of the old ones. What has the
// focus keeps it, and what was scrolled stays where it is; where somebody types, nothing changes.
const was = new Map($$("[data-live]").map((part) => [part.id, part.innerHTML]));
let asked = 0, underWay = 0;
export async function refresh() {
  const mine = ++asked;
  underWay += 1;
  const answer = await fetched(location.href.split("#")[0]).finally(() => { underWay -= 1; });
  if (mine !== asked) return; // a later one is under way
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (!answer.ok) throw new Error($("main .error", fresh)?.textContent || `it answered ${answer.status}`);
  for (const old of $$("[data-live]")) {
    const part = fresh.getElementById(old.id), html = part?.innerHTML;
    if (!part || was.get(old.id) === html) continue;
    const active = old.contains(document.activeElement) ? document.activeElement : null;
    if (active?.matches("input, select, textarea") || $$("input, select", old).some(isEdited)) continue;
    const path = active && pathTo(active, old), scrolled = $$(".wide", old).map((wide) => wide.scrollLeft);
    old.replaceChildren(...part.childNodes);
    was.set(old.id, html);
    if (path) focusOn(path.reduce((node, i) => node?.children[i], old), old);
    $$(".wide", old).forEach((wide, i) => { wide.scrollLeft = scrolled[i] || 0; });
    showTimes(old);
  }
}

// Where that has gone, the part that it was in has the focus: the keyboard goes on from there.
function focusOn(node, part) {
  node?.focus({ preventScroll: true });
  if (part.contains(document.activeElement)) return;
  part.tabIndex = -1;
  part.focus({ preventScroll: true });
}

function pathTo(node, root) {
  const path = [];
  for (; node !== root; node = node.parentElement) path.unshift([...node.parentElement.children].indexOf(node));
  return path;
}

// What is shown is old if it cannot be refreshed: that is said as long as it is so.
const stale = $("#stale");
let refreshed = new Date();
async function refreshQuietly() {
  try {
    await refresh();
    refreshed = new Date();
    stale.hidden = true;
  } catch (error) {
    const said = `This is as of ${refreshed.toLocaleTimeString()}, and cannot be refreshed: ${error.message}`;
    if (stale.textContent !== said) stale.textContent = said;
    stale.hidden = false;
  }
}
if ($("[data-live]")) {
  setInterval(() => { if (!document.hidden && !underWay && !$("dialog[open]")) refreshQuietly(); }, 5000);
}
setInterval(() => showTimes(), 10000);

// One button, one thing: the page shows what became of it.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-get], [data-post]");
  if (!button || button.ariaBusy) return; // it is not disabled, which would take the focus away
  const method = button.dataset.get ? "GET" : "POST";
  button.ariaBusy = "true";
  try {
    await ask(method, button.dataset.get || button.dataset.post);
    tell(button.dataset.said);
    await refresh();
  } catch (error) {
    tell(error.message);
  }
  button.ariaBusy = null;
});

// A filter that is typed into filters.
const filter = $("#filter");
filter?.addEventListener("input", () => {
  clearTimeout(filter.timer);
  filter.timer = setTimeout(() => {
    const url = new URL(location.href);
    url.searchParams.set("filter", filter.value);
    url.searchParams.delete("page");
    history.replaceState(null, "", url);
    refresh().catch((error) => tell(error.message));
  }, 150);
});

// Settings, changed in place: only their own row is drawn anew.
async function changeSetting(form, value) {
  const key = form.dataset.key, output = $("output", form);
  output.textContent = "";
  try {
    await ask("PATCH", form.dataset.settings, { changes: { [key]: value } });
    const answer = await fetch(location.href.split("#")[0]);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    form.closest("tr").replaceWith(fresh.getElementById(key).closest("tr"));
    $(`form[data-key="${key}"]`).elements.value.focus();
    tell(value === null ? `${key} is back at its default` : `${key} is saved`);
    await refresh();
  } catch (error) {
    output.textContent = error.message;
  }
}
function isEdited(field) {
  return field.value !== (field.matches("select") ? [...field.options].find((o) => o.defaultSelected)?.value : field.defaultValue);
}
function offerToSave(field) {
  const form = field.closest("form[data-settings]"), save = form && $("button:not([data-reset])", form);
  if (!save) return;
  $("output", form).textContent = "";
  save.hidden = !isEdited(field);
  $(".words", form)?.toggleAttribute("hidden", !save.hidden);
}
document.addEventListener("input", ({ target }) => offerToSave(target));
$$("form[data-settings] [name=value]").forEach(offerToSave); // somebody may have typed before this ran
document.addEventListener("keydown", ({ key, target }) => {
  if (key !== "Escape" || !target.matches("form[data-settings] input")) return;
  target.value = target.defaultValue;
  target.dispatchEvent(new Event("input", { bubbles: true }));
});
document.addEventListener("submit", (event) => {
  if (!event.target.matches("form[data-settings]")) return;
  event.preventDefault();
  changeSetting(event.target, event.target.elements.value.value);
});
document.addEventListener("click", ({ target }) => {
  if (target.matches("[data-reset]")) changeSetting(target.closest("form"), null);
});

const newTopic = $("#new-topic");
newTopic?.addEventListener("input", () => { $("output", newTopic).textContent = ""; });
newTopic?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const fields = newTopic.elements, output = $("output", newTopic), settings = {};
  for (const line of fields.settings.value.split("\n").filter((line) => line.trim())) {
    const at = line.indexOf("=");
    if (at < 1) { output.textContent = `“${line}” is not key=value`; return; }
    settings[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  const policy = fields["cleanup.policy"].value;
  if (policy) settings["cleanup.policy"] = policy === "keep" ? "" : policy;
  try {
    await ask("POST", "/api/topics", { name: fields.name.value, partitions: Number(fields.partitions.value), settings });
    location.href = `/topics/${fields.name.value}`;
  } catch (error) {
    output.textContent = error.message;
  }
});

showAccess();
checkToken().catch(() => {});
showTimes();
