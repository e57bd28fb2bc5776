// The words of one topic over time.

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
