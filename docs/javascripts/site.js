// What scrolls sideways can be reached with the keyboard; long lines of an output are sentences, and are wrapped.
document.addEventListener("DOMContentLoaded", () => {
  for (const output of document.querySelectorAll(".language-text code")) {
    const longest = Math.max(...output.textContent.split("\n").map((line) => line.length));
    output.classList.toggle("sentences", longest > 90);
  }
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap")) box.tabIndex = 0;
});
