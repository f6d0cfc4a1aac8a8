"use strict";
// A region's instances in order of time and as a histogram, on one axis of durations.
(() => {
  const plotData = page.data.plot_data;
  const holder = page.byId("instance-series"), beside = page.byId("instance-spread");
  if (!plotData || !holder || !plotData.instances.length) return;
  const HEIGHT = 260, LOG_FROM = 30; // longest over shortest, from which a linear axis would flatten the rest
  const CLOSE = 1.5; // the same, up to which the axis does not start at zero
  const select = page.byId("instance-region");
  plotData.instances.forEach((series, number) => {
    const option = page.make("option", `${plotData.regions[series.r]} (${page.count(series.n)})`);
    option.value = String(number);
    select.append(option);
  });
  // First shown: the region with the most time among those repeated often enough to be steps, and that launch work if any do.
  const often = [true, false].map((works) => plotData.instances.findIndex((series) => series.n >= 3 && (!works || series.p))).find((at) => at >= 0) ?? 0;
  let chosen = often, which = "h", charts = [];

  const powers = (_, values) => values.map((value) => (value === null ? "" : page.duration(value)));

  // The next lower of 1, 2 and 5 times a power of ten: ticks of a logarithmic axis start there.
  const roundDown = (value) => {
    const power = 10 ** Math.floor(Math.log10(value));
    return power * [5, 2, 1].find((factor) => value >= factor * power);
  };

  const build = () => {
    charts.forEach((chart) => chart.destroy());
    const series = plotData.instances[chosen];
    if (which === "p" && !series.p) which = "h";
    const value = series[which], spread = series[which + "s"];
    const normal = [], warm = [];
    series.i.forEach((index, place) => {
      const ns = value[place] < 0 ? null : value[place];
      normal.push(index < series.warm ? null : ns);
      warm.push(index < series.warm ? ns : null);
    });
    const known = value.filter((ns) => ns >= 0);
    const shortest = Math.max(Math.min(...known), 1), longest = Math.max(...known, 2);
    const log = longest / shortest > LOG_FROM;
    const near = !log && longest < CLOSE * shortest; // from zero they would lie on one line
    const pad = Math.max((longest - shortest) * 0.12, 1);
    const range = log ? [roundDown(shortest), longest * 1.3] : near ? [shortest - pad, longest + pad] : [0, longest * 1.06];
    const faint = page.color("--faint"), grid = { stroke: page.color("--grid"), width: 1 };
    const axis = { stroke: faint, grid, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    // On a logarithmic axis: powers of ten, and 2 and 5 times them where there is room.
    const marks = () => {
      const found = [];
      for (let power = 10 ** Math.floor(Math.log10(range[0])); power <= range[1]; power *= 10) {
        for (const factor of range[1] / range[0] > 300 ? [1] : [1, 2, 5]) {
          if (factor * power >= range[0] && factor * power <= range[1]) found.push(factor * power);
        }
      }
      return found;
    };
    const splits = log ? { splits: marks, filter: (_, values) => values } : {};
    const y = { distr: log ? 3 : 1, range: () => range };
    const mark = page.color("--left"), warmth = page.color("--warm");

    const drawWarm = (chart) => {
      const { ctx, bbox } = chart;
      if (!series.warm) return;
      const ratio = uPlot.pxRatio;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      const edge = chart.valToPos(series.warm - 0.5, "x", true);
      ctx.fillStyle = `${warmth}1c`;
      ctx.fillRect(bbox.left, bbox.top, Math.max(edge - bbox.left, 0), bbox.height);
      ctx.strokeStyle = warmth;
      ctx.lineWidth = 1.6 * ratio;
      series.i.forEach((index, place) => {
        if (warm[place] === null) return;
        const x = chart.valToPos(index, "x", true), at = chart.valToPos(warm[place], "y", true), size = 4.5 * ratio;
        ctx.beginPath();
        ctx.moveTo(x, at - size);
        ctx.lineTo(x + size, at);
        ctx.lineTo(x, at + size);
        ctx.lineTo(x - size, at);
        ctx.closePath();
        ctx.stroke();
      });
      ctx.restore();
    };
    const tell = (chart) => {
      const place = chart.cursor.idx;
      if (place === null || place === undefined || chart.cursor.left < 0 || value[place] < 0) return page.tip.hide();
      const box = chart.over.getBoundingClientRect();
      const index = series.i[place];
      page.tip.show([{ text: `instance ${page.count(index)}: ${page.duration(value[place])}`, strong: true },
                     ...(index < series.warm ? [{ text: "warm-up" }] : [])], box.left + chart.cursor.left, box.top + chart.cursor.top);
    };
    const width = Math.max(holder.clientWidth, 200);
    charts = [new uPlot({
      width, height: HEIGHT, legend: { show: false }, padding: [8, 8, 0, 0],
      cursor: { y: false, drag: { x: true, y: false }, points: { size: 9, fill: "transparent", stroke: page.color("--ink") } },
      scales: { x: { time: false, range: (_, from, to) => [Math.min(from, -0.5), Math.max(to, from + 1) + (to >= series.n - 1 ? 0.5 : 0)] }, y },
      axes: [{ ...axis, values: (_, values) => values.map((n) => (Number.isInteger(n) && n >= 0 ? page.count(n) : "")), size: 26 },
             { ...axis, ...splits, values: log ? powers : page.ticks, size: 74 }],
      series: [{}, { stroke: mark, paths: () => null, points: { show: true, size: series.i.length > 400 ? 3.5 : 5.5, fill: mark, stroke: mark, width: 0 } },
               { paths: () => null, points: { show: false } }],
      hooks: { draw: [drawWarm], setCursor: [tell] },
    }, [series.i, normal, warm], holder)];
    const most = Math.max(...spread.c, 1);
    const drawBars = (chart) => {
      const { ctx, bbox } = chart;
      ctx.save();
      ctx.fillStyle = mark;
      spread.c.forEach((count, i) => {
        if (!count) return;
        const top = chart.valToPos(Math.max(spread.e[i + 1], 1), "y", true), bottom = chart.valToPos(Math.max(spread.e[i], 1), "y", true);
        const thick = Math.max(bottom - top - 1, uPlot.pxRatio * 2);
        ctx.globalAlpha = spread.last && i === spread.c.length - 1 ? 0.3 : 1;
        ctx.fillRect(bbox.left, (top + bottom) / 2 - thick / 2, Math.max(((chart.valToPos(count, "x", true)) - bbox.left), 2), thick);
      });
      ctx.restore();
    };
    charts.push(new uPlot({
      width: Math.max(beside.clientWidth, 150), height: HEIGHT, legend: { show: false }, padding: [8, 10, 0, 0], cursor: { show: false },
      scales: { x: { time: false, range: () => [0, most * 1.04] }, y },
      axes: [{ ...axis, size: 26, values: (_, values) => values.map((n) => (Number.isInteger(n) ? page.count(n) : "")), space: 60 }, { ...axis, ...splits, values: () => [], size: 4 }],
      series: [{}, { points: { show: false }, paths: () => null }],
      hooks: { draw: [drawBars] },
    }, [[0, most], [shortest, longest]], beside));
    page.byId("instance-text").textContent = series.text + (log ? " The axis is logarithmic." : near ? " The axis does not start at zero." : "");
    for (const button of page.all("[data-which]")) {
      button.setAttribute("aria-pressed", String(button.dataset.which === which));
      button.disabled = button.dataset.which === "p" && !series.p;
    }
    select.value = String(chosen);
    const words = `${plotData.regions[series.r]}: ${series.text}`;
    holder.setAttribute("role", "img");
    holder.setAttribute("aria-label", words);
  };

  select.addEventListener("change", () => { chosen = Number(select.value); build(); });
  for (const button of page.all("[data-which]")) button.addEventListener("click", () => { which = button.dataset.which; build(); });
  holder.addEventListener("mouseleave", () => page.tip.hide());
  page.byId("instance-tools").hidden = false;
  page.chooseInstances = (region) => {
    const found = plotData.instances.findIndex((series) => series.r === region);
    if (found >= 0) { chosen = found; build(); }
  };
  page.instances = { charts: () => charts };
  page.redraws.push(build);
  build();
})();
