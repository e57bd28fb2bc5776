// Shares of topics over time, the share of one topic with its uncertainty, and its words in each time bin.

const MOST_BANDS = 12;

// The topics that are drawn, largest first; the others share one band.
function bands(model) {
  const { nodes, shares, bins } = model.time;
  const mean = shares.map((list) => list.reduce((sum, share, bin) => sum + (share ?? 0) * bins[bin].n_documents, 0));
  const order = [...nodes.keys()].sort((a, b) => mean[b] - mean[a]);
  const most = order.length <= MOST_BANDS + 1 ? order.length : MOST_BANDS;
  const drawn = order.slice(0, most).map((place) => ({ place, node: nodes[place], values: shares[place] }));
  const rest = order.slice(most);
  if (rest.length) {
    const values = bins.map((_, bin) => (hasTexts(model, bin) ? rest.reduce((sum, place) => sum + shares[place][bin], 0) : null));
    drawn.push({ place: null, node: null, values, folded: rest.length });
  }
  return drawn;
}

// A bin without documents has no shares: it is a gap.
function hasTexts(model, bin) {
  return model.time.bins[bin].n_documents > 0 && model.time.shares.every((list) => list[bin] !== null && list[bin] !== undefined);
}

// Runs of bins with documents: [first, last].
function runs(model) {
  const found = [];
  model.time.bins.forEach((_, bin) => {
    if (!hasTexts(model, bin)) return;
    if (found.length && found.at(-1)[1] === bin - 1) found.at(-1)[1] = bin;
    else found.push([bin, bin]);
  });
  return found;
}

function bandColour(model, band) {
  return band.node === null ? token("rest") : nodeColour(model, band.node);
}

// A run as a polygon: half a bin beyond its ends, so that a single bin is a bar.
function runTrace(model, band, at, [from, to], faded) {
  const bins = Array.from({ length: to - from + 1 }, (_, i) => from + i);
  const colour = bandColour(model, band);
  const title = band.node === null ? `${band.folded} others` : model.title[band.node];
  const tip = (bin) => `<b>${plain(cut(title, 50))}</b><br>${plain(model.time.bins[bin].name)}: ${percent(band.values[bin])} of ${count(model.time.bins[bin].n_documents, "document")}`;
  return {
    type: "scatter", mode: "lines", stackgroup: `run ${from}`, name: plain(title), meta: at, hoveron: "points+fills", hoverinfo: "text",
    x: [from - 0.5, ...bins, to + 0.5], y: [band.values[from], ...bins.map((bin) => band.values[bin]), band.values[to]],
    text: [tip(from), ...bins.map(tip), tip(to)],
    line: { width: 0 },
    fillcolor: mix(colour, token("ground"), faded ? 0.3 : 0.72),
    // Each band has its own pattern in addition to its colour.
    fillpattern: { shape: PATTERNS[at % PATTERNS.length], size: 7, solidity: 0.2, fillmode: "overlay",
      bgcolor: mix(colour, token("ground"), faded ? 0.28 : 0.72), fgcolor: mix(colour, token("ground"), faded ? 0.12 : 0.45) },
  };
}

function timeAxis(model, width) {
  const { bins } = model.time;
  const longest = Math.max(...bins.map((bin) => bin.name.length), 4);
  const step = Math.max(1, Math.ceil((bins.length * (longest * 7.5 + 14)) / Math.max(200, width)));
  const ticks = [...bins.keys()].filter((bin) => bin % step === 0);
  return { tickvals: ticks, ticktext: ticks.map((bin) => plain(bins[bin].name)), showgrid: false, zeroline: false, range: [-0.6, bins.length - 0.4], fixedrange: true };
}

// Number of documents in each bin, under the shares: a share of three documents says little.
function countTrace(model) {
  const { bins } = model.time;
  return { type: "bar", x: [...bins.keys()], y: bins.map((bin) => bin.n_documents), yaxis: "y2", marker: { color: token("faint") }, hoverinfo: "text", textposition: "none",
    text: bins.map((bin) => `${plain(bin.name)}: ${count(bin.n_documents, "document")}`), name: "documents", showlegend: false };
}

function timeLayout(model, host, more) {
  return { margin: { l: 48, r: 8, t: 10, b: 34 }, showlegend: false, hovermode: "closest", bargap: 0.15, ...more,
    xaxis: { ...timeAxis(model, host.clientWidth || 800), anchor: "y2" },
    yaxis: { tickformat: ".0%", rangemode: "tozero", fixedrange: true, domain: [0.17, 1], ...more?.yaxis },
    yaxis2: { domain: [0, 0.11], fixedrange: true, nticks: 2, gridcolor: token("line"), zerolinecolor: token("line"), tickfont: { size: 10, color: token("mute") }, automargin: true } };
}

function drawBands(host, model, drawn, chosen) {
  const hasChosen = drawn.some((band) => band.node === chosen);
  const traces = runs(model).flatMap((run) => drawn.map((band, at) => runTrace(model, band, at, run, hasChosen && band.node !== chosen)));
  const click = (event) => {
    const band = drawn[event.points[0]?.data.meta];
    if (band && band.node !== null) go({ node: band.node });
  };
  return chart(host, [...traces, countTrace(model)], timeLayout(model, host, { annotations: bandLabels(model, drawn, host.clientWidth || 800),
    yaxis: { range: [0, 1.005] } }), { plotly_click: click }, { displayModeBar: false });
}

// The share of one topic with a 95% interval (Wilson); gaps where there are no documents.
function drawLine(host, model, drawn, chosen) {
  const place = model.time.nodes.indexOf(chosen);
  const colour = nodeColour(model, chosen);
  const { bins, shares } = model.time;
  const bounds = (bin) => {
    const [n, p, z2] = [bins[bin].n_documents, shares[place][bin], 1.96 ** 2];
    const [middle, half] = [(p + z2 / (2 * n)) / (1 + z2 / n), (Math.sqrt(z2) * Math.sqrt((p * (1 - p)) / n + z2 / (4 * n * n))) / (1 + z2 / n)];
    return [Math.max(0, middle - half), Math.min(1, middle + half)];
  };
  const range = runs(model).map(([from, to]) => {
    const x = Array.from({ length: to - from + 1 }, (_, i) => from + i);
    const back = x.toReversed();
    return { type: "scatter", mode: "lines", line: { width: 0 }, fill: "toself", fillcolor: mix(colour, token("ground"), 0.22), hoverinfo: "skip",
      x: [from - 0.12, ...x, to + 0.12, to + 0.12, ...back, from - 0.12],
      y: [bounds(from)[1], ...x.map((bin) => bounds(bin)[1]), bounds(to)[1], bounds(to)[0], ...back.map((bin) => bounds(bin)[0]), bounds(from)[0]] };
  });
  const x = [...bins.keys()];
  const line = { type: "scatter", mode: "lines+markers", x, y: x.map((bin) => (hasTexts(model, bin) ? shares[place][bin] : null)), connectgaps: false,
    line: { color: colour, width: 2.5 }, marker: { color: colour, size: 6, symbol: "circle" }, hoverinfo: "text",
    text: x.map((bin) => (hasTexts(model, bin) ? `${plain(bins[bin].name)}: <b>${percent(shares[place][bin])}</b><br>95% interval ${bounds(bin).map((one) => percent(one)).join(" to ")}` : "")) };
  return chart(host, [...range, line, countTrace(model)], timeLayout(model, host, { hovermode: "x", annotations: [] }), {}, { displayModeBar: false });
}

// Titles inside the bands, at the widest place that no other title covers.
function bandLabels(model, drawn, width) {
  const below = model.time.bins.map(() => 0);
  const [taken, marks] = [[], []];
  const last = below.length - 1;
  for (const band of drawn) {
    const order = [...below.keys()].sort((a, b) => (band.values[b] ?? 0) - (band.values[a] ?? 0));
    const title = band.node === null ? "" : model.title[band.node];
    // The whole title, or its first word, where the band is narrow.
    const [text, fits, bin] = [cut(title, 30), cut(title.split(",")[0], 18)].map((one) => place(one, band, order)).find(([, , at]) => at !== undefined) ?? [];
    if (bin !== undefined) {
      const box = fits(bin);
      taken.push(box);
      marks.push({ x: box.x, y: box.y, text: plain(text), showarrow: false, font: { size: 12, color: token("ink") },
        bgcolor: token("veil"), borderpad: 2, captureevents: false });
    }
    band.values.forEach((value, at) => (below[at] += value ?? 0));
  }
  return marks;

  function place(text, band, order) {
    const half = (text.length * 7 * below.length) / Math.max(200, width) / 2 + 0.1; // of the text, in bins
    const fits = (bin) => {
      const [x, y] = [Math.max(half - 0.5, Math.min(last + 0.5 - half, bin)), below[bin] + band.values[bin] / 2];
      // The band must be wide enough under the whole text.
      const under = [...below.keys()].filter((one) => Math.abs(one - x) <= half);
      if ([...below.keys()].some((one) => Math.abs(one - x) < half + 0.5 && (band.values[one] ?? null) === null)) return false;
      if (under.some((one) => below[one] > y - 0.02 || below[one] + band.values[one] < y + 0.02)) return false;
      return taken.every((box) => Math.abs(box.x - x) > box.half + half || Math.abs(box.y - y) > 0.06) && { x, y, half };
    };
    return [text, fits, text && 2 * half < below.length ? order.find((one) => (band.values[one] ?? 0) > 0.055 && fits(one)) : undefined];
  }
}

function timeLegend(model, drawn, chosen) {
  return drawn.map((band) => (band.node === null
    ? make("li", {}, make("span", { class: "glyph", style: { color: token("rest") }, "aria-hidden": "true" }, "●"), make("span", { class: "mute" }, `${band.folded} others`))
    : make("li", { class: band.node === chosen ? "now" : "" }, dot(model, band.node), nodeButton(model, band.node))));
}

function timeView(stage, model) {
  const host = make("div", { class: "plot", id: "time", role: "img", "aria-label": "Shares of the topics over time" });
  const below = make("div", { class: "below" });
  const drawn = bands(model);
  const names = make("ul", { class: "plain legend", id: "legend", "aria-label": "Topics" });
  const modes = picker("Chart", [["bands", "All topics"], ["line", "One topic"]], "bands", (key) => {
    mode = key;
    draw(state.node);
  });
  let mode = "bands";
  const empty = model.time.bins.filter((_, bin) => !hasTexts(model, bin)).length;
  stage.replaceChildren(make("div", { class: "column" }, make("div", { class: "tools" }, modes,
    make("span", { class: "hint" }, empty ? `${count(empty, "time bin")} without documents: a gap. ` : "", "Bars: documents per bin.")), host, names, below));
  const draw = async (chosen) => {
    const place = model.time.nodes.indexOf(chosen);
    const asLine = mode === "line" && place >= 0;
    modes.show(asLine ? "line" : "bands");
    modes.children[1].disabled = place < 0;
    modes.children[1].title = place < 0 ? "Select a topic first" : "";
    names.replaceChildren(...timeLegend(model, drawn, chosen));
    below.replaceChildren(...(place < 0
      ? [make("p", { class: "hint" }, "Select a topic to see its words over time.")]
      : [make("h3", {}, `Words of “${model.title[chosen]}” by ${model.time.field || "time"}`), trendLine(model, place),
        make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Words over time" }, vocabulary(model, place)),
        make("p", { class: "hint" }, "Underlined: not among the words of the previous time bin. Longer bar: more weight.")]));
    await (asLine ? drawLine : drawBands)(host, model, drawn, chosen);
    document.documentElement.dataset.ready = `time ${mode}`;
  };
  return { draw };
}
