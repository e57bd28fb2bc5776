// Shares of topics over time, and the words of one topic in each time bin.

const MOST_BANDS = 12;

// The topics that are drawn, largest first; the others share one band.
function bands(model) {
  const { nodes, shares } = model.time;
  const mean = shares.map((list) => list.reduce((a, b) => a + (b ?? 0), 0));
  const order = [...nodes.keys()].sort((a, b) => mean[b] - mean[a]);
  const most = order.length <= MOST_BANDS + 1 ? order.length : MOST_BANDS;
  const drawn = order.slice(0, most).map((place, rank) => ({ place, rank, node: nodes[place], values: shares[place] }));
  const rest = order.slice(most);
  if (rest.length) {
    const values = model.time.bins.map((_, bin) =>
      shares[0][bin] === null ? null : rest.reduce((sum, place) => sum + shares[place][bin], 0));
    drawn.push({ place: null, rank: null, node: null, values, folded: rest.length });
  }
  return drawn;
}

function drawBands(host, model, drawn, chosen) {
  const names = model.time.bins.map((bin) => bin.name);
  const hasChosen = drawn.some((band) => band.node === chosen);
  const traces = drawn.map((band, at) => {
    const colour = hue(band.rank === null ? null : band.rank % N_HUES);
    const faded = hasChosen && band.node !== chosen;
    const title = band.node === null ? `${band.folded} others` : model.title[band.node];
    return {
      type: "scatter",
      mode: "lines",
      stackgroup: "shares",
      name: plain(title),
      x: names,
      y: band.values.map((value) => value ?? 0),
      line: { width: band.node === chosen ? 2 : 0.8, color: colour, shape: "spline", smoothing: 0.6 },
      fillcolor: mix(colour, token("ground"), faded ? 0.3 : 0.75),
      // Each band has its own pattern in addition to its colour.
      fillpattern: {
        shape: PATTERNS[at % PATTERNS.length], size: 7, solidity: 0.22, fillmode: "overlay",
        bgcolor: mix(colour, token("ground"), faded ? 0.25 : 0.75), fgcolor: token("ground"),
      },
      hoveron: "points+fills",
      text: band.values.map((value, bin) => `<b>${plain(cut(title, 50))}</b><br>${plain(names[bin])}: ${percent(value)}`),
      hoverinfo: "text",
    };
  });
  const click = (event) => {
    const band = drawn[event.points[0].curveNumber];
    if (band && band.node !== null) go({ node: band.node });
  };
  const marks = bandLabels(model, drawn, names, host.clientWidth || 800);
  return chart(host, traces, {
    margin: { l: 44, r: 8, t: 8, b: 32 },
    showlegend: false,
    hovermode: "closest",
    annotations: marks,
    xaxis: { type: "category", showgrid: false, nticks: 14 },
    yaxis: { tickformat: ".0%", rangemode: "tozero", fixedrange: true },
  }, { plotly_click: click }, { displayModeBar: false });
}

// Titles inside the bands, at the widest place that no other title covers.
function bandLabels(model, drawn, names, width) {
  const below = names.map(() => 0);
  const taken = [];
  const marks = [];
  for (const band of drawn) {
    const order = [...names.keys()].sort((a, b) => (band.values[b] ?? 0) - (band.values[a] ?? 0));
    const text = band.node === null ? "" : cut(model.title[band.node], 30);
    const half = (text.length * 7 * (names.length - 1)) / width / 2 + 0.1; // of the text, in bins
    const fits = (bin) => {
      const [x, y] = [Math.max(half, Math.min(names.length - 1 - half, bin)), below[bin] + band.values[bin] / 2];
      return taken.every((box) => Math.abs(box.x - x) > box.half + half || Math.abs(box.y - y) > 0.06) && { x, y, half };
    };
    const bin = text ? order.find((one) => (band.values[one] ?? 0) > 0.06 && fits(one)) : undefined;
    if (bin !== undefined) {
      const box = fits(bin);
      taken.push(box);
      marks.push({ x: box.x, y: box.y, text: plain(text), showarrow: false, font: { size: 12, color: token("ink") },
        bgcolor: token("veil"), borderpad: 2, captureevents: false });
    }
    band.values.forEach((value, at) => (below[at] += value ?? 0));
  }
  return marks;
}

function trendLine(model, place) {
  const { bins, trends, shares } = model.time;
  const trend = trends?.[place];
  if (!trend) return "";
  const name = (bin) => (bin === null || bin === undefined ? "–" : bins[bin].name);
  const way = Math.abs(trend.change) < 0.005 ? "steady" : trend.change > 0 ? "rising" : "falling";
  return make("p", { class: "meta" }, `First seen ${name(trend.birth)}, strongest ${name(trend.peak)} `,
    `(${percent(shares[place][trend.peak])}), last seen ${name(trend.last)}; ${way} `,
    `(${signed(100 * trend.change, 1)} points from the first third to the last).`);
}

// One column per time bin; words that are new in a bin are marked.
function vocabulary(model, place) {
  const lists = model.time.words[place];
  const heads = make("tr", {}, model.time.bins.map((bin) => make("th", { scope: "col" }, bin.name,
    make("small", {}, whole.format(bin.n_documents)))));
  const table = make("table", { class: "vocabulary", id: "vocabulary" }, make("thead", {}, heads));
  const largest = Math.max(1e-12, ...lists.flat().map(([, weight]) => weight));
  const body = make("tbody");
  const depth = Math.max(0, ...lists.map((list) => list.length));
  for (let row = 0; row < depth; row++) {
    body.append(make("tr", {}, lists.map((list, bin) => {
      if (!list[row]) return make("td");
      const [word, weight] = list[row];
      const before = lists.slice(0, bin).findLast((one) => one.length);
      const fresh = before && !before.some(([other]) => other === word);
      return make("td", {}, make("span", {
        class: fresh ? "term fresh" : "term", "data-word": word, title: `${word} ${weight.toPrecision(2)}${fresh ? ", new" : ""}`,
        style: { "--strength": `${Math.round((100 * weight) / largest)}%` },
      }, word));
    })));
  }
  table.append(body);
  const mark = (word) => {
    for (const term of table.querySelectorAll(".term")) term.classList.toggle("same", term.dataset.word === word);
  };
  table.addEventListener("mouseover", (event) => mark(event.target.dataset?.word));
  table.addEventListener("mouseleave", () => mark(null));
  return table;
}

function timeView(stage, model) {
  const host = make("div", { class: "plot", id: "time" });
  const below = make("div", { class: "below" });
  const drawn = bands(model);
  const names = make("ul", { class: "plain legend" });
  stage.replaceChildren(make("div", { class: "column" }, host, names, below));
  const draw = async (chosen) => {
    const place = model.time.nodes.indexOf(chosen);
    names.replaceChildren(...drawn.filter((band) => band.node !== null).map((band) =>
      make("li", { class: band.node === chosen ? "now" : "" }, dot(band.rank % N_HUES), nodeButton(model, band.node))));
    below.replaceChildren(...(place < 0
      ? [make("p", { class: "hint" }, "Select a topic to see its words over time.")]
      : [make("h3", {}, `Words of “${model.title[chosen]}” by ${model.time.field || "time"}`), trendLine(model, place),
        make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Words over time" }, vocabulary(model, place)),
        make("p", { class: "hint" }, "Underlined: not among the words of the previous time bin. Longer bar: more weight.")]));
    await drawBands(host, model, drawn, chosen);
  };
  return { draw };
}
