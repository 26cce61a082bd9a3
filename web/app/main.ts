/** Starts the dashboard. */
import './tokens.css';
import './base.css';
import './ahead.ts';
import { mount } from 'svelte';
import App from './App.svelte';
import { clock } from './clock.svelte.ts';
import { place } from './place.svelte.ts';
import { keepPresses } from './press.ts';
import './settings.svelte.ts';

place.listen();
clock.start();
keepPresses();
mount(App, { target: document.body });
