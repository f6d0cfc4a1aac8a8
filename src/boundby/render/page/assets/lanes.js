"use strict";
// How lanes are decoded, drawn on a canvas, and asked what lies under the pointer. Times are ns from the window's start.
page.lanes = (() => {
  const CAUSES = page.data.causes.length;
  const TINTS = 6;

  const starts = (differences) => {
    const found = new Float64Array(differences.length);
    let at = 0;
    for (let i = 0; i < differences.length; i++) found[i] = at += differences[i];
    return found;
  };
  const ends = (start, lengths) => Float64Array.from(start, (value, i) => value + lengths[i]);

  const decode = (plotData) => {
    const accounts = plotData.lanes.map((lane) => {
      const made = { ...lane, account: true };
      if (lane.seg) {
        made.start = starts(lane.seg.s);
        made.end = ends(made.start, lane.seg.l);
      } else {
        made.width = (lane.fine.high - lane.fine.low) / lane.fine.n;
      }
      return made;
    });
    const blocks = (lane) => {
      const start = starts(lane.s);
      return { ...lane, account: false, start, end: ends(start, lane.l) };
    };
    return { accounts, ranges: plotData.ranges.map(blocks), work: plotData.work.map(blocks) };
  };

  // The first place at which values[place] > wanted.
  const after = (values, wanted) => {
    let low = 0, high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] > wanted) high = middle;
      else low = middle + 1;
    }
    return low;
  };

  const stack = (ctx, weights, offset, x, width, y, height, colors) => {
    let total = 0;
    for (let cause = 0; cause < CAUSES; cause++) total += weights[offset + cause];
    if (!total) return;
    let bottom = y + height;
    for (let cause = 0; cause < CAUSES; cause++) {
      const part = (weights[offset + cause] / total) * height;
      if (!part) continue;
      ctx.fillStyle = colors[cause].fill;
      ctx.fillRect(x, bottom - part, width, part + 0.3);
      bottom -= part;
    }
  };

  // Stretches that fill whole columns of pixels are drawn as they are; columns that hold several show their shares.
  const drawAccount = (ctx, lane, box, low, high, look) => {
    const scale = box.width / (high - low);
    const columns = Math.ceil(box.width) + 1;
    const weights = new Float32Array(columns * CAUSES);
    const letters = [];
    const add = (from, to, cause) => {
      for (let column = Math.max(Math.floor(from), 0); column < to && column < columns; column++) {
        const part = Math.min(to, column + 1) - Math.max(from, column);
        if (part > 0) weights[column * CAUSES + cause] += part;
      }
    };
    if (lane.seg) {
      for (let i = after(lane.end, low); i < lane.start.length && lane.start[i] < high; i++) {
        const from = Math.max((lane.start[i] - low) * scale, 0), to = Math.min((lane.end[i] - low) * scale, box.width);
        const cause = lane.seg.c[i];
        const first = Math.ceil(from), last = Math.floor(to);
        if (last > first) {
          ctx.fillStyle = look.colors[cause].fill;
          ctx.fillRect(box.x + first, box.y, last - first, box.height);
          add(from, first, cause);
          add(last, to, cause);
          if (last - first > 15 * look.ratio) letters.push([cause, (first + last) / 2]);
        } else add(from, to, cause);
      }
    } else {
      const fine = lane.fine;
      const first = Math.max(Math.floor((low - fine.low) / lane.width), 0);
      const stop = Math.min(Math.ceil((high - fine.low) / lane.width), fine.n);
      const one = new Float32Array(CAUSES);
      for (let bin = first; bin < stop; bin++) {
        const from = Math.max((fine.low + bin * lane.width - low) * scale, 0);
        const to = Math.min((fine.low + (bin + 1) * lane.width - low) * scale, box.width);
        if (to - from >= 1) {
          one.fill(0);
          fine.c.forEach((cause, k) => (one[cause] = fine.v[k][bin]));
          stack(ctx, one, 0, box.x + Math.round(from), Math.max(Math.round(to) - Math.round(from), 1), box.y, box.height, look.colors);
        } else {
          fine.c.forEach((cause, k) => {
            const part = fine.v[k][bin] / lane.width;
            if (part) add(from, from + (to - from) * part, cause);
          });
        }
      }
    }
    for (let column = 0; column < columns - 1; column++) {
      stack(ctx, weights, column * CAUSES, box.x + column, 1, box.y, box.height, look.colors);
    }
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    ctx.font = `600 ${10.5 * look.ratio}px ui-monospace, Menlo, Consolas, monospace`;
    for (const [cause, x] of letters) {
      ctx.fillStyle = look.colors[cause].ink;
      ctx.fillText(page.data.causes[cause].letter, box.x + x, box.y + box.height / 2 + look.ratio * 0.5);
    }
  };

  const shortName = (path) => path.slice(path.lastIndexOf("/") + 1);

  // What a block of a lane is called, in short: a range by the end of its path, work by its kernel or call.
  const nameOf = (plotData, lane, i) => (lane.k ? plotData.names[lane.k[i]] : plotData.regions[lane.r[i]]) || "(no range)";
  const inShort = (plotData, lane, i) => (lane.k ? plotData.names[lane.k[i]] : shortName(nameOf(plotData, lane, i)));

  const drawBlocks = (ctx, lane, box, low, high, look, plotData) => {
    const scale = box.width / (high - low);
    let drawn = -1;
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ctx.font = `${10.5 * look.ratio}px system-ui, sans-serif`;
    for (let i = Math.max(after(lane.start, low) - 1, 0); i < lane.start.length && lane.start[i] < high; i++) {
      if (lane.end[i] <= low) continue;
      const from = Math.max((lane.start[i] - low) * scale, 0), to = Math.min((lane.end[i] - low) * scale, box.width);
      const x = Math.floor(from), width = Math.max(Math.floor(to) - x, 1);
      if (width === 1 && x === drawn) continue;
      drawn = x;
      const many = lane.n && lane.n[i] > 1;
      ctx.globalAlpha = many ? 0.55 : 1;
      const number = lane.k ? lane.k[i] : lane.r[i];
      ctx.fillStyle = lane.c ? look.colors[lane.c[i]].fill : look.tints[number < 0 ? 0 : number % TINTS];
      ctx.fillRect(box.x + x, box.y, width > 3 ? width - look.ratio : width, box.height);
      ctx.globalAlpha = 1;
      if (width > 34 * look.ratio) {
        const short = inShort(plotData, lane, i);
        const text = many ? (lane.k ? `${page.count(lane.n[i])}: ${short}, …` : `${lane.n[i]} x ${short}`) : short;
        const fits = Math.floor((width - 6 * look.ratio) / (5.9 * look.ratio));
        ctx.fillStyle = lane.c && !many ? look.colors[lane.c[i]].ink : look.rangeInk;
        ctx.save();
        ctx.beginPath();
        ctx.rect(box.x + x, box.y, width - look.ratio, box.height);
        ctx.clip();
        ctx.fillText(text.length > fits ? text.slice(0, Math.max(fits - 1, 1)) + "…" : text, box.x + x + 4 * look.ratio, box.y + box.height / 2 + look.ratio * 0.5);
        ctx.restore();
      }
    }
  };

  // The range, or the stretch of the account, at an instant; with reach on either side for those too thin to hit.
  const blockAt = (lane, time, reach) => {
    for (let i = after(lane.start, time + reach) - 1; i >= 0 && i > after(lane.start, time + reach) - 6; i--) {
      if (lane.end[i] > time - reach) return i;
    }
    return -1;
  };

  const gapAt = (plotData, lane, time) => plotData.gaps.find((gap) => gap.lane === lane && gap.s <= time && time < gap.s + gap.l);

  const tellGap = (gap, names) => {
    const most = page.data.causes[gap.c];
    const lines = [{ text: `gap of ${page.duration(gap.l)}, mostly ${most.label}`, strong: true, key: gap.c + 1 }];
    if (gap.by.length > 1) {
      const parts = gap.by.slice().sort((a, b) => b[1] - a[1]);
      lines.push({ text: parts.map(([cause, ns]) => `${page.data.causes[cause].label} ${page.duration(ns)}`).join(", ") });
    }
    lines.push({ text: most.meaning });
    if (gap.call) lines.push({ text: most.key === "sync" ? `waited in: ${gap.call}` : `CUDA call: ${gap.call}` });
    if (gap.who) lines.push({ text: `thread: ${gap.who}` });
    lines.push({ text: `region: ${names[gap.r] || "(no range)"}` });
    if (gap.before) lines.push({ text: `before: ${gap.before}` });
    if (gap.after) lines.push({ text: `after: ${gap.after}` });
    return lines;
  };

  const tellAccount = (plotData, lane, number, time) => {
    const gap = gapAt(plotData, number, time);
    const head = [];
    if (lane.seg) {
      const i = after(lane.end, time);
      if (i < lane.start.length && lane.start[i] <= time) {
        const cause = page.data.causes[lane.seg.c[i]];
        head.push({ text: `${cause.label} for ${page.duration(lane.end[i] - lane.start[i])}`, strong: true, key: lane.seg.c[i] + 1 });
        head.push({ text: `${lane.name}, ${plotData.regions[lane.seg.r[i]] || "several regions"}` });
        if (!gap) head.push({ text: cause.meaning });
      }
    } else {
      const bin = Math.floor((time - lane.fine.low) / lane.width);
      if (bin >= 0 && bin < lane.fine.n) {
        head.push({ text: `${lane.name}: ${page.duration(lane.width)} by cause`, strong: true });
        const parts = lane.fine.c.map((cause, k) => [cause, lane.fine.v[k][bin]]).filter((part) => part[1]).sort((a, b) => b[1] - a[1]);
        for (const [cause, ns] of parts.slice(0, 5)) {
          head.push({ text: `${page.data.causes[cause].label} ${page.percent(ns / lane.width)}`, key: cause + 1 });
        }
      }
    }
    return gap ? [...head.slice(0, lane.seg ? 2 : head.length), ...tellGap(gap, plotData.regions)] : head;
  };

  const tellBlock = (plotData, lane, i, instant) => {
    const name = nameOf(plotData, lane, i), length = lane.end[i] - lane.start[i], key = lane.c ? lane.c[i] + 1 : 0;
    const who = { text: lane.device >= 0 ? `GPU ${lane.device}, ${lane.who}` : lane.who };
    if (lane.n && lane.n[i] > 1) {
      const what = lane.c ? "operations" : lane.k ? "calls" : "ranges";
      return [{ text: `${page.count(lane.n[i])} ${what}, most time in ${name}`, strong: true, key },
              { text: `they take ${page.duration(lane.v[i])} of ${page.duration(length)}` }, who];
    }
    return [{ text: name, strong: true, key }, { text: `${page.duration(length)} from ${instant(lane.start[i])}` }, who];
  };

  // Busy part of each of `bins` equal parts of [low, high); null outside the window. Busy causes come first.
  const BUSY = 3;
  const utilization = (lane, low, high, bins) => {
    const busy = new Float64Array(bins), known = new Float64Array(bins), width = (high - low) / bins;
    const add = (into, from, to, part) => {
      from = Math.max(from, low);
      to = Math.min(to, high);
      for (let bin = Math.floor((from - low) / width); from < to && bin < bins; bin++) {
        const stop = Math.min(low + (bin + 1) * width, to);
        into[bin] += Math.max(stop - from, 0) * part;
        from = Math.max(stop, from);
      }
    };
    add(known, lane.low, lane.high, 1);
    if (lane.seg) {
      for (let i = after(lane.end, low); i < lane.start.length && lane.start[i] < high; i++) {
        if (lane.seg.c[i] < BUSY) add(busy, lane.start[i], lane.end[i], 1);
      }
    } else {
      const fine = lane.fine, first = Math.max(Math.floor((low - fine.low) / lane.width), 0);
      for (let bin = first; bin < fine.n && fine.low + bin * lane.width < high; bin++) {
        let part = 0;
        fine.c.forEach((cause, k) => { if (cause < BUSY) part += fine.v[k][bin]; });
        add(busy, fine.low + bin * lane.width, fine.low + (bin + 1) * lane.width, part / lane.width);
      }
    }
    return Array.from(busy, (value, bin) => (known[bin] > width * 1e-6 ? Math.min(value / known[bin], 1) : null));
  };

  // Values given by edges, averaged over `bins` equal parts of [low, high); null where nothing is known.
  const resample = (edges, values, low, high, bins) => {
    const width = (high - low) / bins, found = [];
    let place = Math.max(after(edges, low) - 1, 0);
    for (let bin = 0; bin < bins; bin++) {
      const from = low + bin * width, to = from + width;
      while (place < values.length - 1 && edges[place + 1] <= from) place++;
      let sum = 0, known = 0;
      for (let i = place; i < values.length && edges[i] < to; i++) {
        const overlap = Math.min(edges[i + 1], to) - Math.max(edges[i], from);
        if (values[i] === null || overlap <= 0) continue;
        sum += values[i] * overlap;
        known += overlap;
      }
      found.push(known ? sum / known : null);
    }
    return found;
  };

  return { utilization, resample, decode, drawAccount, drawBlocks, blockAt, tellAccount, tellGap, tellBlock, TINTS };
})();
