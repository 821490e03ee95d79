"use strict";
(() => {
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
  const plots = [];
  const paint = (isDark) => plots.map((plot) => Plotly.relayout(plot, colours(plot.layout, isDark)));
  for (const source of document.querySelectorAll('script[type="application/json"]')) {
    const plot = document.getElementById(`plot-${source.dataset.for}`);
    const { data, layout } = JSON.parse(source.textContent);
    plot.replaceChildren();
    Plotly.newPlot(plot, data, layout, { responsive: true, displaylogo: false, displayModeBar: false });
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
