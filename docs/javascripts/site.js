// What scrolls sideways can be reached with the keyboard; long lines of an output are sentences, and are wrapped.
document.addEventListener("DOMContentLoaded", () => {
  for (const code of document.querySelectorAll(".highlight code")) {
    const isOutput = code.childElementCount === 0; // else its colours are elements
    const longest = Math.max(...code.textContent.split("\n").map((line) => line.length));
    code.classList.toggle("sentences", isOutput && longest > 90);
  }
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap")) box.tabIndex = 0;
});
