"use strict";
(async () => {
  // Plotly is packed, which makes the file half as long.
  if (!window.DecompressionStream) {
    for (const room of document.querySelectorAll(".room")) room.textContent = "Figures need a browser of 2023 or later; their data is below.";
    return;
  }
  const bytes = Uint8Array.from(atob(document.getElementById("plotly").textContent), (letter) => letter.charCodeAt(0));
  const library = document.createElement("script");
  library.textContent = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  document.head.append(library);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const theme = (isDark) => ({ ink: isDark ? "#e6e8eb" : "#24292f", grid: isDark ? "#343a42" : "#e3e5e8", paper: isDark ? "#14171b" : "#ffffff" });
  // Colours of text and grid follow the page; those of the arms never change.
  const colours = (layout, isDark) => {
    const { ink, grid, paper } = theme(isDark);
    const changes = { "font.color": ink, "hoverlabel.bgcolor": paper };
    for (const key of Object.keys(layout)) {
      if (/^[xy]axis\d*$/.test(key)) {
        changes[`${key}.gridcolor`] = grid;
        changes[`${key}.linecolor`] = grid;
        changes[`${key}.tickcolor`] = grid;
      }
    }
    return changes;
  };
  // Where the page is narrow, panels stand in one column, and the legend below them in one too.
  const NARROW = 600;
  const stacked = (data, layout) => {
    const axes = Object.keys(layout).filter((key) => /^xaxis\d*$/.test(key));
    const names = new Set(data.filter((trace) => trace.showlegend !== false && trace.name).map((trace) => trace.name));
    const legend = names.size > 1 || data.some((trace) => trace.showlegend) ? 20 * names.size + 24 : 0;
    const panels = (layout.meta || {}).panels || 1;
    const copy = structuredClone(layout);
    const margin = { l: 52, r: 10, t: layout.margin.t, b: 56 + legend };
    copy.margin = margin;
    copy.font = { ...layout.font, size: 12 };
    copy.legend = { ...layout.legend, orientation: "v", font: { size: 12 } };
    copy.legend.maxheight = 4000;
    if (panels > 1 && axes.length >= panels) {
      const room = 250, gap = 96, whole = panels * room + (panels - 1) * gap;
      copy.height = whole + margin.t + margin.b;
      axes.slice(panels).forEach((key) => { copy[key].visible = copy[key.replace("x", "y")].visible = false; });
      axes.slice(0, panels).forEach((key, number) => {
        const bottom = 1 - (number * (room + gap) + room) / whole;
        const other = key.replace("x", "y"), old = [layout[key].domain, layout[other].domain];
        copy[key].domain = [0, 1];
        copy[other].domain = [Math.max(0, bottom), bottom + room / whole];
        copy[other].showticklabels = layout.yaxis.showticklabels;
        (layout.annotations || []).forEach((note, place) => {
          const isTitle = note.xref === "paper" && note.yref === "paper" && Math.abs(note.x - (old[0][0] + old[0][1]) / 2) < 1e-6 && Math.abs(note.y - old[1][1]) < 1e-6;
          if (isTitle) Object.assign(copy.annotations[place], { x: 0.5, y: bottom + room / whole });
        });
      });
    } else if (legend) copy.height = layout.height + legend;
    return copy;
  };
  const plots = [];
  const paint = (isDark) => plots.map((plot) => Plotly.relayout(plot, colours(plot.layout, isDark)));
  for (const source of document.querySelectorAll('script[type="application/json"]')) {
    const plot = document.getElementById(`plot-${source.dataset.for}`);
    const { data, layout } = JSON.parse(source.textContent);
    plot.replaceChildren();
    Plotly.newPlot(plot, data, innerWidth < NARROW ? stacked(data, layout) : layout, { responsive: true, displaylogo: false, displayModeBar: false });
    plots.push(plot);
  }
  for (const button of document.querySelectorAll("button[data-save]")) {
    const plot = document.getElementById(`plot-${button.dataset.save}`);
    // Paper is white: the file has the colours of print, whatever the screen shows.
    button.addEventListener("click", async () => {
      await Plotly.relayout(plot, colours(plot.layout, false));
      await Plotly.downloadImage(plot, { format: "svg", filename: button.dataset.save, width: plot.clientWidth, height: plot.clientHeight });
      await Plotly.relayout(plot, colours(plot.layout, dark.matches));
    });
  }
  for (const button of document.querySelectorAll("button[data-all]")) {
    const plot = document.getElementById(`plot-${button.dataset.all}`);
    const hidden = JSON.parse(document.querySelector(`script[data-for="${button.dataset.all}"]`).textContent).data.map((trace) => trace.visible ?? true);
    let isAll = false;
    button.addEventListener("click", () => {
      isAll = !isAll;
      button.textContent = isAll ? "fewer arms" : "all arms";
      Plotly.restyle(plot, { visible: isAll ? hidden.map(() => true) : hidden });
    });
  }
  paint(dark.matches);
  dark.addEventListener("change", () => paint(dark.matches));
  // One figure alone, by its button or by the address `report.html?figure=accuracy`.
  const buttons = [...document.querySelectorAll("button[data-alone]")];
  let alone = null;
  const show = (figure) => {
    alone = figure;
    for (const part of document.querySelectorAll("main > *")) part.hidden = alone !== null && part !== alone;
    for (const button of buttons) button.textContent = alone ? "whole report" : "figure alone";
    for (const plot of seen()) Plotly.Plots.resize(plot);
  };
  const seen = () => plots.filter((plot) => plot.offsetParent !== null);
  for (const button of buttons) {
    const figure = document.getElementById(button.dataset.alone);
    button.addEventListener("click", () => { show(alone ? null : figure); figure.scrollIntoView(); });
  }
  const asked = document.getElementById(new URLSearchParams(location.search).get("figure"));
  if (asked) show(asked);
  // A sheet of paper is narrower than a screen, and a drawing does not shrink by itself.
  const resize = (width) => seen().map((plot) => Plotly.relayout(plot, width ? { width: Math.min(width, plot.clientWidth) } : { width: null, autosize: true }));
  addEventListener("beforeprint", () => { paint(false); resize(690); });
  addEventListener("afterprint", () => { resize(0); paint(dark.matches); });
})();
