// SPDX-License-Identifier: Apache-2.0
"use strict";
// Draws a figure when it comes into view, or is about to be printed: a page may have hundreds.
const figures = JSON.parse(document.getElementById("figures").textContent);
const places = [...document.querySelectorAll("[data-figure]")];
// On a narrow screen the contents would stand before everything else.
document.querySelector("nav details").open = !matchMedia("(max-width: 60rem)").matches;
const canHover = matchMedia("(hover: hover)").matches;
const dark = matchMedia("(prefers-color-scheme: dark)");

function themed(axis) {
  const color = getComputedStyle(document.documentElement).getPropertyValue("--line").trim();
  return {...axis, gridcolor: color, linecolor: color, zeroline: false};
}

function draw(place) {
  const {data, layout} = figures[Number(place.dataset.figure)];
  const style = getComputedStyle(document.documentElement);
  Plotly.react(place, data, {
    ...layout,
    xaxis: themed(layout.xaxis),
    yaxis: themed(layout.yaxis),
    margin: {l: 8, r: 12, t: 8, b: 8},
    // Charts of lines share a legend of the page's own.
    showlegend: data[0].type === "bar",
    legend: {orientation: "h", y: -0.25, yanchor: "top", font: {size: 11}},
    modebar: {bgcolor: "rgba(0,0,0,0)"},
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: {color: style.getPropertyValue("--text").trim(), size: 12},
    hoverlabel: {align: "left", namelength: -1},
  }, {
    responsive: true, displaylogo: false, modeBarButtons: [["toImage", "resetScale2d"]],
    displayModeBar: canHover ? "hover" : false,  // where nothing hovers, it would stand in the way for good
  });
  place.dataset.drawn = "yes";
}

for (const button of document.querySelectorAll("[data-line]")) {
  button.addEventListener("click", () => {
    const shown = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", shown);
    for (const place of button.closest(".chart").querySelectorAll("[data-figure]")) {
      for (const line of figures[Number(place.dataset.figure)].data) {
        if (line.meta === button.dataset.line) line.visible = shown ? true : "legendonly";
      }
      if (place.dataset.drawn) draw(place);
    }
  });
}

const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting && !entry.target.dataset.drawn) draw(entry.target);
  }
}, {rootMargin: "400px"});
places.forEach((place) => watcher.observe(place));
dark.addEventListener("change", () => places.filter((place) => place.dataset.drawn).forEach(draw));
addEventListener("beforeprint", () => {
  document.querySelectorAll("details").forEach((details) => { details.open = true; });
  places.filter((place) => !place.dataset.drawn).forEach(draw);
});
