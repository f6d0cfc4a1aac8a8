"use strict";
// Utilization over time, the account's lanes, streams, calls and ranges on one axis: zoom, move, hover, gaps one by one.
// Inside, times are ns from the window's start; every instant that is shown is of the trace's clock.
(() => {
  const plotData = page.data.plot_data;
  const holder = page.byId("plots");
  if (!plotData || !holder) return;
  const { accounts, ranges, work } = page.lanes.decode(plotData);
  const LANE = 26, RANGE = 16, BETWEEN = 7, UTILIZATION = 118;
  const rows = [];
  const layOut = () => {
    rows.length = 0;
    let y = 4;
    const thin = (lane, label) => {
      rows.push({ lane, number: -1, y, height: RANGE - 2, label });
      y += RANGE;
    };
    accounts.forEach((lane, number) => {
      rows.push({ lane, number, y, height: LANE, label: lane.name });
      y += LANE + 2;
      if (lane.kind === "device") work.filter((other) => other.device === lane.id).forEach((other) => thin(other, other.label));
      y += BETWEEN - 2;
    });
    // Each thread: its calls, below them its ranges.
    const calls = work.filter((lane) => lane.device < 0);
    for (const who of new Set([...ranges, ...calls].map((lane) => lane.who))) {
      [...calls, ...ranges].filter((lane) => lane.who === who).forEach((lane, place) => thin(lane, place ? "" : who));
      y += BETWEEN;
    }
    return y + 2;
  };
  const height = layOut();
  const span = plotData.span;
  let low = 0, high = span, charts = [], chosenGap = -1, look = null, pointer = null;
  const bySize = plotData.gaps.map((gap, number) => number).sort((a, b) => plotData.gaps[b].l - plotData.gaps[a].l || a - b);

  // An instant of the trace's clock, with digits enough to tell pixels apart.
  const instant = (from) => {
    const ns = from + plotData.origin;
    const [scale, unit] = page.UNITS.slice(0, 4).reverse().find(([size]) => Math.max(Math.abs(ns), (high - low) / 2) >= size) || page.UNITS[0];
    const digits = Math.min(Math.max(Math.ceil(-Math.log10((high - low) / 1000 / scale)), 0), 9);
    return `${(ns / scale).toFixed(digits)} ${unit}`;
  };
  const gutter = () => (innerWidth < 640 ? 62 : 132);

  const setRange = (from, to) => {
    const least = Math.max(span * 1e-7, 50);
    let width = Math.min(Math.max(to - from, least), span);
    from = Math.min(Math.max(from, 0), span - width);
    low = from;
    high = from + width;
    if (charts.length) {
      sampled = sample();
      charts[0].setData([sampled.edges, ...sampled.values.map((values) => [...values, values[values.length - 1]])], false);
    }
    for (const chart of charts) chart.setScale("x", { min: low, max: high });
    page.byId("timeline-range").textContent = width >= span ? `all ${page.duration(span)}` : `${instant(low)} to ${instant(high)} (${page.duration(width)})`;
    if (width < span || page.hash.time()) page.hash.keep(width < span ? `timeline&t=${Math.round(low + plotData.origin)}-${Math.round(high + plotData.origin)}` : "timeline");
    // What the tip tells of has moved.
    if (pointer) pointer.tell();
    else if (chosenGap >= 0 && !page.tip.node.hidden) tellGap();
  };
  const zoom = (factor, centre) => {
    const at = centre === undefined ? (low + high) / 2 : centre;
    setRange(at - (at - low) * factor, at + (high - at) * factor);
  };

  const showGap = (number, tell) => {
    chosenGap = number;
    const gap = plotData.gaps[number];
    setRange(gap.s - 1.5 * gap.l, gap.s + 2.5 * gap.l);
    const place = bySize.indexOf(number) + 1;
    page.byId("timeline-range").textContent += ` · gap ${place} of ${bySize.length}: ${page.duration(gap.l)}, ${page.data.causes[gap.c].label}`;
    pointer = null;
    if (tell) tellGap();
  };
  const tellGap = () => {
    const gap = plotData.gaps[chosenGap], box = charts[1].over.getBoundingClientRect();
    const row = rows.find((item) => item.number === gap.lane), middle = (gap.s + gap.l / 2 - low) / (high - low);
    if (middle < 0 || middle > 1) page.tip.hide();
    else page.tip.show(page.lanes.tellGap(gap, plotData.regions), box.left + box.width * middle, box.top + row.y + row.height);
  };
  page.showTime = (at, length) => {
    chosenGap = -1;
    setRange(at - 1.5 * length, at + 2.5 * length);
    page.byId("timeline").scrollIntoView();
  };

  const looks = () => ({
    colors: page.causeColors(), ratio: uPlot.pxRatio, rangeInk: page.color("--range-ink"), ink: page.color("--ink"), faint: page.color("--faint"),
    tints: Array.from({ length: page.lanes.TINTS }, (_, i) => page.color(`--range-${i + 1}`)),
  });

  const drawLanes = (chart) => {
    const { ctx, bbox } = chart;
    ctx.save();
    for (const row of rows) {
      const box = { x: bbox.left, y: bbox.top + row.y * look.ratio, width: bbox.width, height: row.height * look.ratio };
      if (row.lane.account) page.lanes.drawAccount(ctx, row.lane, box, low, high, look);
      else page.lanes.drawBlocks(ctx, row.lane, box, low, high, look, plotData);
      ctx.textAlign = "right";
      ctx.textBaseline = "middle";
      ctx.font = `${(row.lane.account ? 12 : 10.5) * look.ratio}px system-ui, sans-serif`;
      ctx.fillStyle = row.lane.account ? look.ink : look.faint;
      if (row.label) {
        // Where there is no room the middle goes: a thread's number tells it apart.
        const end = row.label.lastIndexOf(" (") >= 0 ? row.label.slice(row.label.lastIndexOf(" (") + 1) : "";
        let start = row.label.slice(0, row.label.length - end.length), text = row.label;
        while (start.length > 0 && ctx.measureText(text).width > (gutter() - 12) * look.ratio) {
          start = start.slice(0, -1);
          text = start + "…" + end;
        }
        ctx.fillText(text, box.x - 7 * look.ratio, box.y + box.height / 2);
      }
      if (row.lane.account && chosenGap >= 0 && plotData.gaps[chosenGap].lane === row.number) {
        const gap = plotData.gaps[chosenGap], scale = bbox.width / (high - low);
        const from = Math.max((gap.s - low) * scale, 0), to = Math.min((gap.s + gap.l - low) * scale, bbox.width);
        if (to > from) {
          ctx.strokeStyle = look.ink;
          ctx.lineWidth = 2 * look.ratio;
          ctx.strokeRect(box.x + from, box.y - look.ratio, Math.max(to - from, 2), box.height + 2 * look.ratio);
        }
      }
    }
    ctx.restore();
  };

  const axis = (shown) => ({
    show: shown, stroke: look.faint, grid: { stroke: page.color("--grid"), width: 1 }, ticks: { stroke: page.color("--grid"), width: 1, size: 5 },
    font: "11px system-ui, sans-serif", values: (_, values) => page.ticks(_, values.map((value) => value + plotData.origin)), space: 110, size: 26,
    splits: (_chart, _axis, from, to, step) => { // round ones of the trace's clock
      const found = [];
      for (let at = Math.ceil((from + plotData.origin) / step) * step; at <= to + plotData.origin; at += step) found.push(at - plotData.origin);
      return found;
    },
  });
  const common = (width) => ({
    width, legend: { show: false }, padding: [4, 14, 0, 0],
    cursor: { sync: { key: "timeline" }, y: false, points: { show: false }, drag: { x: true, y: false, setScale: false },
              bind: { dblclick: () => () => { chosenGap = -1; setRange(0, span); } } },
    scales: { x: { time: false, range: () => [low, high] } },
    hooks: { setSelect: [(chart) => {
      if (chart.select.width > 2) {
        const from = chart.posToVal(chart.select.left, "x"), to = chart.posToVal(chart.select.left + chart.select.width, "x");
        chart.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        setRange(from, to);
      }
    }] },
  });

  const lines = [];
  accounts.forEach((lane) => { if (lane.gpu) lines.push({ lane, values: lane.gpu, name: accounts.length > 1 ? `${lane.name}` : "GPU", color: "--gpu" }); });
  accounts.forEach((lane) => { if (lane.cpu) lines.push({ lane, values: lane.cpu, name: lane.kind === "thread" ? `CPU of ${lane.name}` : accounts.length > 1 ? `CPU of ${lane.name}'s threads` : "CPU", color: "--cpu" }); });

  // Utilization of what is shown: exact on the GPU as far as its lane is, on the CPU as fine as the page has it.
  let sampled = null;
  const sample = () => {
    const bins = Math.max(Math.min(Math.round(holder.clientWidth / 7), 180), 30);
    const edges = Array.from({ length: bins + 1 }, (_, i) => low + ((high - low) * i) / bins);
    const values = lines.map((line) => (line.color === "--gpu"
      ? page.lanes.utilization(line.lane, low, high, bins) : page.lanes.resample(plotData.edges, line.values, low, high, bins)));
    return { edges, values };
  };

  const build = () => {
    charts.forEach((chart) => chart.destroy());
    charts = [];
    look = looks();
    const width = Math.max(holder.clientWidth - 8, 240);
    const stepped = uPlot.paths.stepped({ align: 1 });
    const base = common(width);
    const utilization = {
      ...base, height: lines.length ? UTILIZATION : 1, // nothing to draw: no empty axes
      scales: { ...base.scales, y: { range: [0, 1.04] } },
      axes: [{ ...axis(lines.length > 0), values: () => [], size: 4, ticks: { show: false } },
             { ...axis(lines.length > 0), size: gutter(), splits: () => [0, 0.25, 0.5, 0.75, 1], values: (_, values) => values.map((value) => `${Math.round(value * 100)} %`), space: 18 }],
      series: [{}, ...lines.map((line) => ({
        label: line.name, stroke: page.color(line.color), width: line.color === "--cpu" ? 1.5 : 1.25, paths: stepped, points: { show: false },
        fill: line.color === "--gpu" && lines.filter((other) => other.color === "--gpu").length === 1 ? `${page.color("--gpu")}33` : undefined,
      }))],
    };
    sampled = sample();
    charts.push(new uPlot(utilization, [sampled.edges, ...sampled.values.map((values) => [...values, values[values.length - 1]])], holder));
    const lanes = {
      ...base, height: height + 34,
      hooks: { ...base.hooks, draw: [drawLanes] },
      scales: { ...base.scales, y: { range: [0, 1] } },
      axes: [axis(true), { show: true, size: gutter(), values: () => [], grid: { show: false }, ticks: { show: false } }],
      series: [{}, { points: { show: false } }],
    };
    charts.push(new uPlot(lanes, [[0, span], [null, null]], holder));
    listen();
  };

  const listen = () => {
    const [top, bottom] = charts;
    for (const chart of charts) {
      chart.over.addEventListener("wheel", (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        zoom(event.deltaY > 0 ? 1.25 : 0.8, chart.posToVal(event.offsetX, "x"));
      }, { passive: false });
      chart.over.addEventListener("mouseleave", () => { pointer = null; page.tip.hide(); });
    }
    const under = (chart, event) => low + ((high - low) * event.offsetX) / chart.over.clientWidth; // charts lag behind a zoom
    // Told again after a zoom: the pointer has stayed, what lies under it has not.
    const follow = (chart, tell) => chart.over.addEventListener("mousemove", (event) => {
      const { offsetX, offsetY, clientX, clientY } = event;
      pointer = { tell: () => tell({ offsetX, offsetY, clientX, clientY }) };
      pointer.tell();
    });
    follow(top, (event) => {
      const at = under(top, event);
      const width = (high - low) / (sampled.edges.length - 1);
      const bin = Math.min(Math.max(Math.floor((at - low) / width), 0), sampled.edges.length - 2);
      const told = lines.map((line, i) => ({ text: `${line.name} ${sampled.values[i][bin] === null ? "not known" : page.percent(sampled.values[i][bin])}`, strong: true }));
      page.tip.show([...told, { text: `in ${page.duration(width)} from ${instant(sampled.edges[bin])}` }], event.clientX, event.clientY);
    });
    const hit = (event) => {
      const y = event.offsetY, at = under(bottom, event);
      const row = rows.find((item) => item.y <= y && y < item.y + item.height + 1);
      return { row, at, reach: (high - low) / bottom.over.clientWidth };
    };
    follow(bottom, (event) => {
      const { row, at, reach } = hit(event);
      let told = [];
      if (row && row.lane.account) told = page.lanes.tellAccount(plotData, row.lane, row.number, at);
      else if (row) {
        const i = page.lanes.blockAt(row.lane, at, reach);
        if (i >= 0) told = page.lanes.tellBlock(plotData, row.lane, i, instant);
      }
      if (told.length) page.tip.show([...told, { text: `at ${instant(at)}` }], event.clientX, event.clientY);
      else page.tip.hide();
    });
    bottom.over.addEventListener("click", (event) => {
      const { row, at, reach } = hit(event);
      if (!row || row.lane.account || row.lane.k) return;
      const i = page.lanes.blockAt(row.lane, at, reach);
      if (i < 0) return;
      if (page.chooseRegion) page.chooseRegion(plotData.rows[row.lane.r[i]]);
      if (page.chooseInstances) page.chooseInstances(row.lane.r[i]);
    });
  };

  const actions = {
    in: () => zoom(0.5), out: () => zoom(2), reset: () => { chosenGap = -1; page.tip.hide(); setRange(0, span); },
    left: () => setRange(low - (high - low) / 4, high - (high - low) / 4),
    right: () => setRange(low + (high - low) / 4, high + (high - low) / 4),
    next: () => bySize.length && showGap(bySize[Math.min(bySize.indexOf(chosenGap) + 1, bySize.length - 1)], true),
    previous: () => bySize.length && showGap(bySize[Math.max(bySize.indexOf(chosenGap) - 1, 0)], true),
  };
  const KEYS = { "+": "in", "=": "in", "-": "out", _: "out", "0": "reset", Home: "reset", ArrowLeft: "left", ArrowRight: "right", n: "next", p: "previous" };
  holder.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") page.tip.hide();
    if (!KEYS[event.key]) return;
    event.preventDefault();
    actions[KEYS[event.key]]();
  });
  holder.addEventListener("blur", () => page.tip.hide());
  page.byId("timeline-tools").hidden = false;
  for (const button of page.all("[data-do]")) {
    if (!bySize.length && ["next", "previous"].includes(button.dataset.do)) button.hidden = true;
    button.addEventListener("click", () => actions[button.dataset.do]());
    button.addEventListener("blur", () => page.tip.hide());
  }
  for (const button of page.all(".goto")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      if (button.dataset.gap !== undefined) {
        page.byId("timeline").scrollIntoView();
        showGap(Number(button.dataset.gap), true);
        holder.focus({ preventScroll: true });
      } else page.showTime(Number(button.dataset.at), Math.max(Number(button.dataset.for), 1000));
    });
  }
  page.timeline = { range: () => [low, high], setRange, charts: () => charts, rows };
  page.hash.onTime = (from, to) => setRange(from - plotData.origin, to - plotData.origin);
  page.redraws.push(() => { build(); setRange(low, high); });
  build();
  setRange(0, span);
})();
