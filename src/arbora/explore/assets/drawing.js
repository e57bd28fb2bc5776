// Helpers for drawing: elements, numbers, colours, charts; light and dark theme.

const ARIA_LIVE = "polite";
const PATTERNS = ["", "/", ".", "-", "x", "\\", "+", "|"];

// Make an element. Text is always set as text, so that the content of a document is never parsed as HTML.
function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") Object.entries(value).forEach(([key, one]) => made.style.setProperty(key, one));
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

function byId(id) {
  return document.getElementById(id);
}

// Plotly interprets a few HTML tags: escape text of the user.
function plain(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function cut(text, length) {
  return text.length > length ? `${text.slice(0, Math.max(1, length - 1)).trimEnd()}…` : text;
}

// Break a long text into escaped lines for a tooltip.
function wrapped(text, width = 60, most = 5) {
  const lines = [""];
  for (const word of cut(text, width * most).split(" ")) {
    if (lines.at(-1).length + word.length > width && lines.at(-1)) lines.push("");
    lines[lines.length - 1] += (lines.at(-1) ? " " : "") + cut(word, width);
  }
  return lines.map(plain).join("<br>");
}

const whole = new Intl.NumberFormat("en");

function percent(value, digits = 1) {
  if (value === null || value === undefined) return "–";
  const least = 0.5 * 10 ** -(digits + 2);
  return value > 0 && value < least ? `<${2 * least * 100}%` : `${(100 * value).toFixed(digits)}%`;
}

function number(value, digits = 3) {
  return value === null || value === undefined ? "–" : value.toFixed(digits);
}

function signed(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  return `${value > 0 ? "+" : value < 0 ? "−" : "±"}${Math.abs(value).toFixed(digits)}`;
}

function count(n, one, many = `${one}s`) {
  return `${whole.format(n)} ${n === 1 ? one : many}`;
}

// --- colours ---------------------------------------------------------------------------------------------------------

function isDark() {
  return document.documentElement.dataset.theme === "dark";
}

function token(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function mix(colour, ground, part) {
  const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const [a, b] = [channels(colour), channels(ground)];
  return `rgb(${a.map((value, i) => Math.round(part * value + (1 - part) * b[i])).join(",")})`;
}

// Colour between poor and good; the lightness of the ramp is monotone.
function ramp(part) {
  const stops = [0, 1, 2, 3, 4].map((i) => token(`ramp-${i}`));
  const at = Math.min(0.9999, Math.max(0, part)) * 4;
  const low = Math.floor(at);
  return mix(stops[low + 1], stops[low], at - low);
}

function bar(part, colour) {
  const width = `${Math.max(0, Math.min(1, part || 0)) * 100}%`;
  return make("span", { class: "bar", "aria-hidden": "true" },
    make("span", { style: { width, "background-color": colour ?? token("accent") } }));
}

// --- charts ----------------------------------------------------------------------------------------------------------

const CONFIG = {
  displaylogo: false,
  responsive: true,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "sendDataToCloud", "toImage", "resetCameraLastSave3d"],
};

function layout(more = {}) {
  const ink = token("ink");
  const axis = { gridcolor: token("line"), zerolinecolor: token("line"), linecolor: token("line"), automargin: true,
    title: { font: { size: 12, color: token("mute") } }, tickfont: { size: 12, color: token("soft") } };
  const { xaxis, yaxis, ...rest } = more;
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: token("font"), size: 13, color: ink },
    margin: { l: 0, r: 0, t: 0, b: 0 },
    hoverlabel: { bgcolor: token("raised"), bordercolor: token("line"), align: "left", font: { family: token("font"), color: ink, size: 12.5 } },
    xaxis: { ...axis, ...xaxis, title: { ...axis.title, ...xaxis?.title } },
    yaxis: { ...axis, ...yaxis, title: { ...axis.title, ...yaxis?.title } },
    ...rest,
  };
}

// Draw or redraw a chart; the handlers of the previous drawing are removed.
async function chart(host, traces, more, handlers = {}, config = {}) {
  await Plotly.react(host, traces, layout(more), { ...CONFIG, ...config });
  host.removeAllListeners?.();
  for (const [event, handler] of Object.entries(handlers)) host.on(event, handler);
}

// --- tooltip ---------------------------------------------------------------------------------------------------------

// One tooltip for all views; its content is elements or text, never HTML.
function showTip(event, ...content) {
  let tip = byId("tip");
  if (!tip) document.body.append((tip = make("div", { id: "tip", class: "tip", role: "tooltip", hidden: true })));
  tip.replaceChildren(...content);
  tip.hidden = false;
  const { clientX = 0, clientY = 0 } = event ?? {};
  tip.style.left = `${Math.max(8, Math.min(clientX + 14, innerWidth - tip.offsetWidth - 12))}px`;
  tip.style.top = `${Math.max(8, Math.min(clientY + 16, innerHeight - tip.offsetHeight - 12))}px`;
}

function hideTip() {
  const tip = byId("tip");
  if (tip) tip.hidden = true;
}

// Save a text as a file.
function saveText(text, name, type) {
  download(new Blob([text], { type }), name);
}

function download(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// Buttons of which one is pressed.
function picker(label, options, chosen, choose) {
  const group = make("div", { class: "picker", role: "group", "aria-label": label }, options.map(([key, text, more]) =>
    make("button", { type: "button", "data-key": key, "aria-pressed": String(key === chosen), ...more, onclick: () => choose(key) }, text)));
  group.show = (key) => [...group.children].forEach((one) => one.setAttribute("aria-pressed", String(one.dataset.key === String(key))));
  return group;
}
