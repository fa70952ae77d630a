// Draws the charts of a page from their own tables, which stand without it (templates/parts/chart.html).
//
// A drawing is in the shadow of its element: what live.js compares and replaces is the page as the server sent it. A part that is
// replaced is drawn anew; all are when the colours or the clock (data-clock="local" of the document, otherwise UTC) change.
"use strict";
(function () {
  const own = document.currentScript.dataset;
  const root = document.documentElement;
  const drawn = new Map();
  const dashes = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 3], [12, 6], [3, 6], [6, 2, 2, 2], [1, 4]];
  const height = 200;
  const narrow = 500;
  const daySeconds = 86400;
  let library = null;
  let styles = null;

  function load() {
    if (!library) {
      const script = new Promise((done, failed) => {
        const element = document.createElement("script");
        element.src = own.library;
        element.onload = done;
        element.onerror = () => failed(new Error(own.library + " does not load"));
        document.head.append(element);
      });
      const sheet = fetch(own.styles).then((answer) => {
        if (!answer.ok) throw new Error(own.styles + " answers " + answer.status);
        return answer.text();
      });
      library = Promise.all([script, sheet]).then((loaded) => {
        styles = new CSSStyleSheet();
        styles.replaceSync(loaded[1] +
          ".uplot { font: inherit; width: 100%; } .u-legend { font-size: 0.85rem; text-align: left; margin: 0; }" +
          ".u-legend th { font-weight: normal; } .u-legend .u-value { font-variant-numeric: tabular-nums; } .u-series > * { padding: 1px 4px 1px 0; }" +
          ".u-legend .u-marker { width: 1.8rem; height: 3px; } .u-legend .u-series:first-child .u-marker { display: none; }" +
          ".u-legend.u-inline.u-live th::after { content: none; }" +
          ".u-select { background: color-mix(in srgb, currentcolor 12%, transparent); }");
      });
    }
    return library;
  }

  function seconds(time) { return Date.parse(time.getAttribute("datetime")) / 1000; }

  function number(text) { return text.trim() === "" ? null : Number(text.replaceAll(",", "")); }

  function numbersOf(figure) {
    const table = figure.querySelector("table");
    const labels = Array.from(table.querySelectorAll("thead th")).slice(1).map((cell) => cell.textContent);
    const columns = [[], ...labels.map(() => [])];
    table.querySelectorAll("tbody tr").forEach((row) => {
      columns[0].push(seconds(row.querySelector("time")));
      Array.from(row.cells).slice(1).forEach((cell, place) => columns[place + 1].push(number(cell.textContent)));
    });
    const marks = Array.from(figure.querySelectorAll(".marks li")).map((item) => (
      { at: seconds(item.querySelector("time")), label: item.querySelector("span").textContent }));
    return { labels, columns, marks };
  }

  function local() { return root.dataset.clock === "local"; }

  function written(moment) {
    const date = new Date(moment * 1000);
    const two = (value) => String(value).padStart(2, "0");
    const parts = local()
      ? [date.getFullYear(), date.getMonth() + 1, date.getDate(), date.getHours(), date.getMinutes()]
      : [date.getUTCFullYear(), date.getUTCMonth() + 1, date.getUTCDate(), date.getUTCHours(), date.getUTCMinutes()];
    return { day: parts[0] + "-" + two(parts[1]) + "-" + two(parts[2]), time: two(parts[3]) + ":" + two(parts[4]) };
  }

  // Times; the date below the first and wherever a day begins.
  function timeLabels(_plot, splits, _axis, _space, step) {
    let before = "";
    return splits.map((moment) => {
      const { day, time } = written(moment);
      const fresh = day !== before;
      before = day;
      if (step >= daySeconds) return day.slice(5);
      return fresh ? time + "\n" + day.slice(5) : time;
    });
  }

  // A piece of the line as it is drawn: in the legend colours alone would not tell lines apart.
  function sample(colour, dash) {
    if (!dash.length) return colour;
    let at = 0;
    const parts = dash.map((length, place) => (place % 2 ? "transparent" : colour) + " " + at + "px " + (at += length) + "px");
    return "repeating-linear-gradient(90deg, " + parts.join(", ") + ")";
  }

  function short(value) {
    const size = Math.abs(value);
    const unit = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]].find((each) => size >= each[0]);
    return unit ? Number((value / unit[0]).toPrecision(3)) + unit[1] : String(Number(value.toPrecision(3)));
  }

  function paintMarks(marks, colour) {
    return (plot) => {
      const { ctx, bbox } = plot;
      const ratio = devicePixelRatio || 1;
      let free = 0;
      ctx.save();
      ctx.strokeStyle = ctx.fillStyle = colour;
      ctx.lineWidth = ratio;
      ctx.setLineDash([3 * ratio, 3 * ratio]);
      ctx.font = Math.round(11 * ratio) + "px system-ui, sans-serif";
      ctx.textAlign = "left";
      ctx.textBaseline = "top";
      marks.forEach((mark) => {
        const x = Math.round(plot.valToPos(mark.at, "x", true));
        if (x < bbox.left || x > bbox.left + bbox.width) return;
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
        const width = ctx.measureText(mark.label).width + 8 * ratio;
        const left = Math.min(x + 3 * ratio, bbox.left + bbox.width - width);
        if (left < free) return; // two labels never overlap: the list below has both
        ctx.fillText(mark.label, left, bbox.top + 2 * ratio);
        free = left + width;
      });
      ctx.restore();
    };
  }

  function draw(figure) {
    const place = figure.querySelector(".plot");
    const { labels, columns, marks } = numbersOf(figure);
    const shadow = place.shadowRoot || place.attachShadow({ mode: "open" });
    shadow.adoptedStyleSheets = [styles];
    forget(figure);
    const look = getComputedStyle(figure);
    const colour = (name) => look.getPropertyValue(name).trim();
    const quiet = colour("--quiet");
    const grid = { stroke: colour("--line"), width: 1 };
    const width = Math.max(200, place.clientWidth);
    const axis = { stroke: quiet, grid, ticks: grid, font: "12px system-ui, sans-serif" };
    const line = (index) => [colour("--chart-" + (index % dashes.length + 1)), dashes[index % dashes.length]];
    const options = {
      width, height,
      legend: { markers: { width: 0, fill: (_plot, index) => sample(...line(index - 1)) } },
      tzDate: (moment) => (local() ? new Date(moment * 1000) : uPlot.tzDate(new Date(moment * 1000), "Etc/UTC")),
      series: [
        { label: local() ? "local time" : "UTC", value: (_plot, moment) => (moment === null ? "" : written(moment).day + " " + written(moment).time) },
        ...labels.map((label, index) => ({
          label,
          stroke: line(index)[0],
          dash: line(index)[1],
          width: 2,
          value: (_plot, value) => (value === null || value === undefined ? "" : value.toLocaleString("en")),
        })),
      ],
      axes: [
        { ...axis, values: timeLabels, space: width < narrow ? 60 : 75, size: 44 },
        { ...axis, values: (_plot, splits) => splits.map(short), size: 56 },
      ],
      scales: { y: { range: (_plot, least, most) => [Math.min(0, least === null ? 0 : least), most > 0 ? most * (marks.length ? 1.2 : 1.05) : 1] } },
      hooks: { draw: [paintMarks(marks, quiet)] },
      cursor: { y: false },
    };
    const inside = document.createElement("div");
    shadow.replaceChildren(inside);
    const plot = new uPlot(options, columns, inside);
    const watch = new ResizeObserver(() => {
      const now = Math.max(200, place.clientWidth);
      if (now !== plot.width && place.clientWidth) plot.setSize({ width: now, height });
    });
    watch.observe(place);
    drawn.set(figure, { plot, watch });
  }

  function forget(figure) {
    const known = drawn.get(figure);
    if (!known) return;
    known.watch.disconnect();
    known.plot.destroy();
    drawn.delete(figure);
  }

  async function look() {
    drawn.forEach((_, figure) => { if (!figure.isConnected) forget(figure); });
    const waiting = () => Array.from(document.querySelectorAll("[data-chart]")).filter((one) => one.querySelector(".plot") && !drawn.has(one));
    if (!waiting().length) return;
    if (!styles) await load();
    waiting().forEach(draw);
  }

  function again() { Array.from(drawn.keys()).filter((figure) => figure.isConnected).forEach(draw); }

  new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
  new MutationObserver(again).observe(root, { attributes: true, attributeFilter: ["data-clock", "data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  look();
})();
