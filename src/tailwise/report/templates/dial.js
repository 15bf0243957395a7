"use strict";
const slider = document.getElementById("emphasis");
const dial = JSON.parse(slider.dataset.figures);
const cells = document.querySelectorAll("#dial-figures td[data-region]");
const shown = document.getElementById("emphasis-shown");
function turn() {
  const place = Number(slider.value);
  shown.textContent = dial.settings[place];
  for (const cell of cells) {
    cell.textContent = dial.regions[cell.dataset.region][cell.dataset.figure][place];
  }
}
slider.disabled = false;
slider.addEventListener("input", turn);
