// The model, the view and the node are in the URL fragment; the page is drawn from it.

const VIEWS = {
  tree: { label: "Tree", make: treeView, has: () => true },
  time: { label: "Time", make: timeView, has: (model) => Boolean(model.time?.bins.length) },
  quality: { label: "Quality", make: qualityView, has: (model) => Boolean(model.evaluation) },
  map: { label: "Map", make: mapView, has: (model) => model.positions.length > 0 },
  live: { label: "File a document", make: filingView, has: (model) => page.live && model.about.has_text },
};

const page = JSON.parse(byId("data").textContent);
const models = page.models.map((raw) => new Model(raw));
const state = { model: 0, view: "tree", node: models[0]?.root, measure: "f1", dimensions: 2 };
let drawn = {}; // the state that is on the screen
let view = null;
let afterDraw = null;

function address(to) {
  const model = models[to.model];
  const parts = new URLSearchParams();
  if (to.model) parts.set("model", to.model);
  parts.set("view", to.view);
  if (to.node !== model.root) parts.set("node", model.name[to.node]);
  if (to.measure !== "f1") parts.set("measure", to.measure);
  if (Number(to.dimensions) !== 2) parts.set("dimensions", to.dimensions);
  return `#${parts}`;
}

// Change the state: all links and clicks call this. `then` is called after the drawing.
function go(change, then = null) {
  const to = { ...state, ...change };
  if (change.model !== undefined && change.model !== state.model) to.node = models[to.model].root;
  afterDraw = then;
  const next = address(to);
  if (next === location.hash) readAddress();
  else location.hash = next;
}

// Set the state from the URL fragment; missing or invalid values get their defaults.
function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const at = Number(given.get("model"));
  state.model = models[at] ? at : 0;
  const model = models[state.model];
  const wanted = given.get("view");
  state.view = VIEWS[wanted]?.has(model) ? wanted : "tree";
  state.node = model.byName.get(given.get("node") ?? "") ?? model.root;
  state.measure = Object.hasOwn(MEASURES, given.get("measure") ?? "") ? given.get("measure") : "f1";
  state.dimensions = given.get("dimensions") === "3" ? 3 : 2;
  draw();
}

async function draw(again = false) {
  const model = models[state.model];
  const isNew = drawn.model !== state.model;
  if (isNew || drawn.view !== state.view) {
    for (const old of byId("stage").querySelectorAll(".js-plotly-plot")) Plotly.purge(old);
    view = VIEWS[state.view].make(byId("stage"), model);
    again = true;
  }
  if (isNew) drawHead(model);
  for (const tab of byId("views").children) {
    tab.setAttribute("aria-selected", String(tab.dataset.view === state.view));
  }
  if (isNew || drawn.node !== state.node) drawDetails(byId("details"), model, state.node);
  drawTrail(model);
  drawEditBar();
  drawn = { ...state };
  afterDraw?.();
  afterDraw = null;
  await view.draw(state.node);
  if (again) await view.redraw?.();
  document.documentElement.dataset.ready = `${state.view} ${model.name[state.node]}`;
}

function drawHead(model) {
  byId("model").value = String(state.model);
  byId("name").textContent = models.length > 1 ? "" : model.about.name;
  document.title = `${model.about.name} – Arbora`;
  byId("views").replaceChildren(...Object.entries(VIEWS).filter(([, one]) => one.has(model)).map(([key, one]) =>
    make("button", { type: "button", role: "tab", "data-view": key, onclick: () => go({ view: key }) }, one.label)));
  byId("notices").replaceChildren(...(model.about.notices ?? []).map((notice) => make("span", {}, notice)));
}

function drawTrail(model) {
  const path = model.path(state.node);
  byId("trail").replaceChildren(...path.flatMap((node, i) => [
    i ? make("span", { class: "slash", "aria-hidden": "true" }, "/") : "",
    node === state.node
      ? make("span", { "aria-current": "true" }, model.title[node] || "(no name)")
      : nodeButton(model, node),
  ]));
}

// --- search ----------------------------------------------------------------------------------------------------------

function setUpSearch() {
  const box = byId("search");
  const list = byId("found");
  let found = [];
  let at = -1;
  const close = () => {
    list.hidden = true;
    box.setAttribute("aria-expanded", "false");
    box.removeAttribute("aria-activedescendant");
  };
  const choose = (one) => {
    const model = models[state.model];
    box.value = "";
    close();
    if (one.doc !== undefined) showDocument(model, one.doc);
    else go({ node: one.node });
    view.focus?.();
  };
  const point = (to) => {
    at = found.length ? (to + found.length) % found.length : -1;
    [...list.children].forEach((row, i) => row.setAttribute("aria-selected", String(i === at)));
    list.children[at]?.scrollIntoView({ block: "nearest" });
    if (at >= 0 && found.length) box.setAttribute("aria-activedescendant", `found-${at}`);
  };
  const update = () => {
    const model = models[state.model];
    found = model.search(box.value);
    list.replaceChildren(...found.map((one, i) => foundRow(model, one, i, choose)));
    if (!found.length && box.value.trim()) list.append(make("li", { class: "none" }, "Nothing found"));
    list.hidden = !box.value.trim();
    box.setAttribute("aria-expanded", String(!list.hidden));
    point(0);
  };
  box.addEventListener("input", update);
  box.addEventListener("blur", () => setTimeout(close, 150));
  box.addEventListener("keydown", (event) => {
    const act = { ArrowDown: () => point(at + 1), ArrowUp: () => point(at - 1),
      Enter: () => found[at] && choose(found[at]), Escape: () => {
        box.value = "";
        close();
        box.blur();
      } }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    box.focus();
  });
}

function foundRow(model, one, i, choose) {
  const above = model.path(one.node).slice(1, -1).map((node) => model.title[node]).join(" / ");
  const row = one.doc === undefined
    ? [make("span", {}, model.title[one.node]), make("small", {}, cut(above, 60), above ? " · " : "", count(model.size[one.node], "document"))]
    : [make("span", { class: "text" }, cut(model.docs.text[one.doc], 90)), make("small", {}, "document · ", model.title[one.node] ?? "")];
  const item = make("li", { role: "option", id: `found-${i}` }, row);
  item.addEventListener("mousedown", (event) => {
    event.preventDefault();
    choose(one);
  });
  return item;
}

// --- light and dark --------------------------------------------------------------------------------------------------

function setUpTheme() {
  const button = byId("theme");
  const stored = (value) => {
    try { // a local file or a sandboxed frame may have no storage
      return value === undefined ? localStorage.getItem("arbora-theme") : localStorage.setItem("arbora-theme", value);
    } catch {
      return null;
    }
  };
  const show = () => {
    button.textContent = isDark() ? "☾" : "☀";
    button.setAttribute("aria-label", isDark() ? "Switch to light theme" : "Switch to dark theme");
    button.title = button.getAttribute("aria-label");
  };
  const set = (theme) => {
    document.documentElement.dataset.theme = theme;
    show();
  };
  const system = matchMedia("(prefers-color-scheme: dark)");
  const preferred = () => (system.matches ? "dark" : "light");
  button.addEventListener("click", () => {
    set(isDark() ? "light" : "dark");
    stored(document.documentElement.dataset.theme);
    repaint();
  });
  system.addEventListener("change", () => {
    if (stored()) return; // the user has chosen a theme
    set(preferred());
    repaint();
  });
  set(stored() ?? preferred());
}

// The charts contain their colours: a change of theme redraws them.
function repaint() {
  drawDetails(byId("details"), models[state.model], state.node);
  draw(true);
}

function start() {
  const chooser = byId("model");
  chooser.replaceChildren(...models.map((model, i) => make("option", { value: i }, `${model.about.name} (${model.about.kind})`)));
  chooser.hidden = models.length < 2;
  chooser.addEventListener("change", () => go({ model: Number(chooser.value) }));
  setUpTheme();
  setUpSearch();
  window.addEventListener("hashchange", readAddress);
  let waiting = null;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => draw(true), 150);
  });
  readAddress();
}

start();
